"""The learner's heartbeat: what stands in ``agent.json``, and the memory that is read at each beat.

Reads figures that others set, and never waits for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from carla_run import heartbeat_writer
from carla_run.heartbeat import (
    CollectorBeat,
    CollectorFigures,
    CollectorState,
    Cuda,
    Heartbeat,
    MemoryFigures,
    Phase,
)
from carla_run.paths import RunPaths
from carla_td3.exchange.status import Snapshot, Status
from carla_td3.memory.watermarks import Watermarks

CONNECTS = (Phase.STARTING, Phase.WARMING, Phase.COLLECTING)
"""Phases in which the learner waits if all collectors are connecting."""


@dataclass
class Vitals:
    """The learner's state, set by its main thread; each field by one assignment."""

    phase: Phase = Phase.STARTING
    step: int = 0
    updates: int = 0
    total_steps: int = 0
    device: str = ""
    batch: int = 0
    micro_batch: int = 0
    cuda: Cuda | None = None
    """None if no GPU was asked for."""
    gave_way: str = ""
    """The memory event that changed device or micro-batch from what was asked for; empty if none did."""
    update_ms: float | None = None
    collector_restarts: dict[int, int] = field(default_factory=dict)
    """Restarts of each collector, by its number."""
    collector_steps: Sequence[int] = ()
    """Steps in each collector's ring."""
    exit_code: int | None = None


class HeartbeatWriter(heartbeat_writer.HeartbeatWriter):
    """The thread, with the learner's figures."""

    def __init__(self, run: RunPaths, vitals: Vitals, statuses: Sequence[Status], memory: Watermarks) -> None:
        self._vitals = vitals
        self._statuses = statuses
        self._memory = memory
        super().__init__(run.heartbeat, self._now)

    def _now(self) -> Heartbeat:
        vitals, collectors = self._vitals, [status.read() for status in self._statuses]
        waiting = all(each.state is CollectorState.CONNECTING for each in collectors) and vitals.phase in CONNECTS
        phase = Phase.WAITING_FOR_SIMULATOR if waiting else vitals.phase
        self._memory.read(phase.value)
        return Heartbeat(
            time=round(time.time(), 3),
            pid=os.getpid(),
            phase=phase,
            step=vitals.step,
            total_steps=vitals.total_steps,
            updates=vitals.updates,
            episode=sum(each.episodes for each in collectors),
            device=vitals.device,
            batch=vitals.batch,
            micro_batch=vitals.micro_batch,
            cuda=vitals.cuda,
            gave_way=vitals.gave_way or None,
            update_ms=vitals.update_ms,
            ticks=sum(each.ticks for each in collectors),
            tick_outstanding_s=round(max(each.outstanding_s for each in collectors), 3),
            collector=CollectorFigures(self._memory.collector_pids.get(0), collectors[0].state),
            collector_restarts=sum(vitals.collector_restarts.values()),
            collectors=self._listed(collectors) if len(collectors) > 1 else (),
            memory=self._held(),
            exit_code=vitals.exit_code,
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
