"""The learner's heartbeat: what stands in ``agent.json``, and the memory that is read at each beat.

Reads figures that others set, and never waits for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carla_run import heartbeat_writer
from carla_run.heartbeat import (
    CollectorBeat,
    CollectorFigures,
    CollectorState,
    Heartbeat,
    MemoryFigures,
    Phase,
)
from carla_run.paths import RunPaths
from carla_td3.exchange.status import Snapshot, Status
from carla_td3.memory.watermarks import Watermarks

CONNECTS = (Phase.STARTING, Phase.WARMING, Phase.COLLECTING)
"""Phases in which the learner waits if all collectors are connecting."""


class Vitals:
    """The learner's state, set by its main thread; each attribute by one assignment.

    Attributes:
        beat: the heartbeat, without what is read or summed up when it is written.
        collector_restarts: restarts of each collector, by its number.
        collector_steps: steps in each collector's ring.
    """

    def __init__(self, **values: Any) -> None:
        """Start with a heartbeat of these values."""
        self.beat = Heartbeat(0.0, os.getpid(), Phase.STARTING, 0, **values)
        self.collector_restarts: dict[int, int] = {}
        self.collector_steps: Sequence[int] = ()

    def set(self, **values: Any) -> None:
        """Change values of the heartbeat, all at once."""
        self.beat = replace(self.beat, **values)


class HeartbeatWriter(heartbeat_writer.HeartbeatWriter):
    """The thread, with the learner's figures."""

    def __init__(self, run: RunPaths, vitals: Vitals, statuses: Sequence[Status], memory: Watermarks) -> None:
        self._vitals = vitals
        self._statuses = statuses
        self._memory = memory
        super().__init__(run.heartbeat, self._now)

    def _now(self) -> Heartbeat:
        beat, collectors = self._vitals.beat, [status.read() for status in self._statuses]
        waiting = all(each.state is CollectorState.CONNECTING for each in collectors) and beat.phase in CONNECTS
        phase = Phase.WAITING_FOR_SIMULATOR if waiting else beat.phase
        self._memory.read(phase.value)
        return replace(
            beat,
            time=round(time.time(), 3),
            phase=phase,
            episode=sum(each.episodes for each in collectors),
            ticks=sum(each.ticks for each in collectors),
            tick_outstanding_s=round(max(each.outstanding_s for each in collectors), 3),
            collector=CollectorFigures(self._memory.collector_pids.get(0), collectors[0].state),
            collector_restarts=sum(self._vitals.collector_restarts.values()),
            collectors=self._listed(collectors) if len(collectors) > 1 else (),
            memory=self._held(),
        )

    def _listed(self, collectors: Sequence[Snapshot]) -> tuple[CollectorBeat, ...]:
        vitals = self._vitals
        return tuple(
            CollectorBeat(
                pid=self._memory.collector_pids.get(number),
                state=each.state,
                steps=vitals.collector_steps[number] if number < len(vitals.collector_steps) else 0,
                ticks=each.ticks,
                tick_outstanding_s=round(each.outstanding_s, 3),
                restarts=vitals.collector_restarts.get(number, 0),
            )
            for number, each in enumerate(collectors)
        )

    def _held(self) -> MemoryFigures:
        now = self._memory.now
        device = {name.removeprefix("device_"): mib for name, mib in now.items() if name.startswith("device_")}
        return MemoryFigures(now.get("learner"), now.get("collector"), device or None, self._memory.peaks)
