"""The heartbeat: ``agent.json`` once a second, from a thread of the learner.

Owns that file and the beat, at which memory is read too. Reads figures that others set, never waits for them, and
never stops training: a failed write is forgotten.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent.exchange.status import CollectorState, Status
from contract.files import write_whole
from contract.paths import RunPaths

INTERVAL_S = 1.0


@dataclass
class Vitals:
    """What the learner's main thread says about itself; each field is set by one assignment."""

    phase: str = "starting"
    """starting, warming (only collecting yet), collecting (waiting for steps), updating, evaluating, saving,
    draining, drained, stopping, finished, stopped; the heartbeat says waiting_for_simulator while the collector
    connects."""
    step: int = 0
    updates: int = 0
    total_steps: int = 0
    device: str = ""
    batch: int = 0
    micro_batch: int = 0
    cuda: str | None = None
    """What PyTorch makes of CUDA here (``agent.cuda.Cuda``); None where nobody asked for it."""
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


class Heartbeat:
    """The thread. Use as a context manager: the last line is written when it ends."""

    def __init__(self, run: RunPaths, vitals: Vitals, status: Status, memory: MemoryReadings) -> None:
        self._run = run
        self._vitals = vitals
        self._status = status
        self._memory = memory
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
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
            write_whole(self._run.heartbeat, json.dumps(self._figures(), indent=1) + "\n", durable=False)

    def _figures(self) -> dict[str, Any]:
        vitals, collector = self._vitals, self._status.read()
        waiting = collector.state is CollectorState.CONNECTING and vitals.phase in ("starting", "warming", "collecting")
        phase = "waiting_for_simulator" if waiting else vitals.phase
        self._memory.read(phase)
        return {
            "time": round(time.time(), 3),
            "pid": os.getpid(),
            "phase": phase,
            "step": vitals.step,
            "total_steps": vitals.total_steps,
            "updates": vitals.updates,
            "episode": collector.episodes,
            "device": vitals.device,
            "batch": vitals.batch,
            "micro_batch": vitals.micro_batch,
            "cuda": vitals.cuda,
            "gave_way": vitals.gave_way or None,
            "update_ms": vitals.update_ms,
            "ticks": collector.ticks,
            "tick_outstanding_s": round(collector.outstanding_s, 3),
            "collector": {"pid": self._memory.collector_pid, "doing": collector.state.name.lower()},
            "collector_restarts": vitals.collector_restarts,
            "memory": self._held(),
            "exit_code": vitals.exit_code,
        }

    def _held(self) -> dict[str, Any]:
        now = self._memory.now
        device = {name.removeprefix("device_"): mib for name, mib in now.items() if name.startswith("device_")}
        return {
            "learner_mib": now.get("learner"),
            "collector_mib": now.get("collector"),
            "device_mib": device or None,
            "peak_by_phase_mib": self._memory.peaks,
        }


def last_exit_code(path: Path) -> int | None:
    """Return the exit code that a run's last learner gave; None where it gave none, or there was none."""
    try:
        code = json.loads(path.read_text(encoding="utf-8"))["exit_code"]
        return None if code is None else int(code)
    except (OSError, ValueError, KeyError, TypeError):
        return None
