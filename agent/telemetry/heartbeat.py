"""The heartbeat: ``agent.json`` once a second, from a thread of the learner.

Owns that file and the beat, at which memory is read too. Reads figures that others set, never waits for them, and
never stops training: a failed write is forgotten.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.exchange.status import Status
from contract.files import write_whole
from contract.heartbeat import CollectorFigures, CollectorState, Cuda, Heartbeat, MemoryFigures, Phase
from contract.paths import RunPaths

INTERVAL_S = 1.0
CONNECTS = (Phase.STARTING, Phase.WARMING, Phase.COLLECTING)
"""Phases in which a collector that connects keeps the learner waiting."""


@dataclass
class Vitals:
    """What the learner's main thread says about itself; each field is set by one assignment."""

    phase: Phase = Phase.STARTING
    step: int = 0
    updates: int = 0
    total_steps: int = 0
    device: str = ""
    batch: int = 0
    micro_batch: int = 0
    cuda: Cuda | None = None
    """None where nobody asked for it."""
    gave_way: str = ""
    """The event of memory by which device or micro-batch is what nobody asked for; empty for none."""
    update_ms: float | None = None
    collector_restarts: int = 0
    episode: int = 0
    exit_code: int | None = None


class MemoryReadings(Protocol):
    """What the beat asks of memory (``agent.memory.watermarks``, which this room doesn't enter)."""

    collector_pid: int | None

    @property
    def now(self) -> Mapping[str, float]:
        """The last reading, MiB by name."""

    @property
    def peaks(self) -> Mapping[str, Mapping[str, float]]:
        """The maxima by phase, MiB by name."""

    def read(self, phase: str) -> None:
        """Read what is held now, and raise the maxima of a phase."""


class Pulse:
    """The thread. Use as a context manager: the last line is written when it ends."""

    def __init__(self, run: RunPaths, vitals: Vitals, status: Status, memory: MemoryReadings) -> None:
        self._run = run
        self._vitals = vitals
        self._status = status
        self._memory = memory
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Pulse:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._write()

    def _beat(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            write_whole(self._run.heartbeat, self._figures().json(), durable=False)

    def _figures(self) -> Heartbeat:
        vitals, collector = self._vitals, self._status.read()
        waiting = collector.state is CollectorState.CONNECTING and vitals.phase in CONNECTS
        phase = Phase.WAITING_FOR_SIMULATOR if waiting else vitals.phase
        self._memory.read(phase.value)
        return Heartbeat(
            time=round(time.time(), 3),
            pid=os.getpid(),
            phase=phase,
            step=vitals.step,
            total_steps=vitals.total_steps,
            updates=vitals.updates,
            episode=collector.episodes,
            device=vitals.device,
            batch=vitals.batch,
            micro_batch=vitals.micro_batch,
            cuda=vitals.cuda,
            gave_way=vitals.gave_way or None,
            update_ms=vitals.update_ms,
            ticks=collector.ticks,
            tick_outstanding_s=round(collector.outstanding_s, 3),
            collector=CollectorFigures(self._memory.collector_pid, collector.state),
            collector_restarts=vitals.collector_restarts,
            memory=self._held(),
            exit_code=vitals.exit_code,
        )

    def _held(self) -> MemoryFigures:
        now = self._memory.now
        device = {name.removeprefix("device_"): mib for name, mib in now.items() if name.startswith("device_")}
        return MemoryFigures(now.get("learner"), now.get("collector"), device or None, self._memory.peaks)
