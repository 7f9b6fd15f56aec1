"""What the collector is doing, and how far it may go: two small blocks of numbers in mapped files.

Owns their layout. Every field is 8 bytes at a multiple of 8, so one store or load is never torn; no field
depends on another. Times are CLOCK_MONOTONIC, which all processes of a machine share. Knows no policy.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from carla_run.heartbeat import CollectorState

_STATES = tuple(CollectorState)
_STATUS = np.dtype(
    [
        ("state", "i8"),
        ("episodes", "i8"),
        ("ticks", "i8"),
        ("in_call", "i8"),
        ("sign_s", "f8"),
        ("limit_s", "f8"),
        ("idle_limit_s", "f8"),
    ]
)
_PACE = np.dtype([("step_limit", "i8")])


@dataclass(frozen=True)
class Snapshot:
    """The status at one moment."""

    state: CollectorState
    episodes: int
    """Ended in all collectors of this run."""
    ticks: int
    """Of the simulator, in all collectors of this run."""
    in_call: bool
    """Whether a call into the environment is in flight."""
    silent_s: float
    """Since the last sign of life."""
    limit_s: float
    """How long the silence may last."""

    @property
    def outstanding_s(self) -> float:
        """How long the call in flight has been out; 0 when none is."""
        return self.silent_s if self.in_call else 0.0

    @property
    def overdue(self) -> bool:
        """Whether the collector hangs, in a call or outside."""
        return self.silent_s > self.limit_s


class Status:
    """The collector's block: it writes, the learner reads (and clears it between two collectors)."""

    def __init__(self, path: Path) -> None:
        self._block = _mapped(path, _STATUS)

    @classmethod
    def of(cls, exchange: Path, collector: int = 0) -> Status:
        """Return a collector's block."""
        return cls(exchange / _named("status", collector))

    def begin_collector(self, start_limit_s: float, idle_limit_s: float) -> None:
        """Say that a new process starts.

        Args:
            start_limit_s: until its first sign of life.
            idle_limit_s: between two signs of life outside of calls.
        """
        self.state = CollectorState.STARTING
        self._block["in_call"] = 0
        self._block["idle_limit_s"] = idle_limit_s
        self._sign(start_limit_s)

    def end_collector(self) -> None:
        """Say that there is none any more: the call that the last one died in is not outstanding."""
        self.state = CollectorState.ABSENT
        self._block["in_call"] = 0

    def alive(self, limit_s: float | None = None) -> None:
        """Give a sign of life; within a call its limit begins again, as ``limit_s`` if that is given."""
        current_s = float(self._block["limit_s" if self._block["in_call"][0] else "idle_limit_s"][0])
        self._sign(current_s if limit_s is None else limit_s)

    @property
    def state(self) -> CollectorState:
        """What the collector is at."""
        return _STATES[int(self._block["state"][0])]

    @state.setter
    def state(self, state: CollectorState) -> None:
        self._block["state"] = _STATES.index(state)

    @property
    def ticks(self) -> int:
        """Ticks of the simulator, in all collectors of this run."""
        return int(self._block["ticks"][0])

    @ticks.setter
    def ticks(self, ticks: int) -> None:
        self._block["ticks"] = ticks

    @property
    def episodes(self) -> int:
        """Training episodes that ended, in all collectors of this run."""
        return int(self._block["episodes"][0])

    @episodes.setter
    def episodes(self, episodes: int) -> None:
        self._block["episodes"] = episodes

    @contextlib.contextmanager
    def calling(self, limit_s: float) -> Iterator[None]:
        """Mark a call that the client library may never return from; within another one, that one goes on after it."""
        around, around_limit_s = int(self._block["in_call"][0]), float(self._block["limit_s"][0])
        self._sign(limit_s)
        self._block["in_call"] = 1
        try:
            yield
        finally:
            self._block["in_call"] = around
            if around:
                self._sign(around_limit_s)
            else:
                self.alive()

    def read(self) -> Snapshot:
        """Return what the block says now."""
        block = self._block[0]
        return Snapshot(
            state=self.state,
            episodes=self.episodes,
            ticks=self.ticks,
            in_call=bool(block["in_call"]),
            silent_s=max(0.0, time.monotonic() - float(block["sign_s"])),
            limit_s=float(block["limit_s"]),
        )

    def mirror(self, there: Snapshot) -> None:
        """Say what a collector's own block said on another machine; clocks differ, silence doesn't."""
        self.state, self.episodes, self.ticks = there.state, there.episodes, there.ticks
        self._block["in_call"] = there.in_call
        self._sign(there.limit_s, there.silent_s)

    def _sign(self, limit_s: float, ago_s: float = 0.0) -> None:
        # The longer limit first: a reader between the two stores must not see an old time with a short limit.
        now_s = time.monotonic() - ago_s
        if limit_s >= float(self._block["limit_s"][0]):
            self._block["limit_s"] = limit_s
            self._block["sign_s"] = now_s
        else:
            self._block["sign_s"] = now_s
            self._block["limit_s"] = limit_s


class Pace:
    """The learner's block: the collector takes steps while it has fewer than ``step_limit``."""

    def __init__(self, path: Path) -> None:
        self._block = _mapped(path, _PACE)

    @classmethod
    def of(cls, exchange: Path, collector: int = 0) -> Pace:
        """Return a collector's block."""
        return cls(exchange / _named("pace", collector))

    @property
    def step_limit(self) -> int:
        """How many steps may lie in the collector's ring before it waits."""
        return int(self._block["step_limit"][0])

    @step_limit.setter
    def step_limit(self, steps: int) -> None:
        self._block["step_limit"] = steps


def _named(block: str, collector: int) -> str:
    return f"{block}-{collector}.bin" if collector else f"{block}.bin"


def _mapped(path: Path, layout: np.dtype[np.void]) -> np.memmap[tuple[int], np.dtype[np.void]]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # Allocated, not sparse: a store into a hole on a full disk is a SIGBUS (facts.md section 6).
        os.posix_fallocate(descriptor, 0, layout.itemsize)
    finally:
        os.close(descriptor)
    return np.memmap(path, dtype=layout, mode="r+", shape=(1,))
