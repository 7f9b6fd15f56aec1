"""The collector's status and its step limit: two small blocks of numbers in memory-mapped files.

Owns their layout. Times are CLOCK_MONOTONIC, which all processes of a machine share. Decides nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from carla_run.heartbeat import CollectorState
from carla_td3.exchange.blocks import CollectorBlock, Count

_STATES = tuple(CollectorState)


@dataclass(frozen=True)
class Snapshot:
    """The status at one moment."""

    state: CollectorState
    episodes: int
    """Training episodes that ended, in all collectors of this run."""
    ticks: int
    """Simulator ticks in all collectors of this run."""
    in_call: bool
    """Whether a call into the environment is running."""
    silent_s: float
    """Seconds since the last sign of life."""
    limit_s: float
    """Longest allowed time between two signs of life."""

    @property
    def outstanding_s(self) -> float:
        """Seconds since the running call began or last gave a sign of life; 0 outside of calls."""
        return self.silent_s if self.in_call else 0.0

    @property
    def overdue(self) -> bool:
        """Whether the time limit has passed: the collector then counts as hung."""
        return self.silent_s > self.limit_s


class Status(CollectorBlock):
    """The collector's block. The collector writes it. The learner reads it, and clears it between collectors."""

    NAME = "status"
    LAYOUT = np.dtype(
        [
            *((name, "i8") for name in ("state", "episodes", "ticks", "in_call")),
            *((name, "f8") for name in ("last_sign_s", "limit_s", "idle_limit_s")),
        ]
    )
    ticks = Count()
    """Simulator ticks in all collectors of this run."""
    episodes = Count()
    """Training episodes that ended, in all collectors of this run."""
    in_call = Count()
    """1 while a call into the environment is running, else 0."""

    def begin_collector(self, start_limit_s: float, idle_limit_s: float) -> None:
        """Record that a new collector process starts.

        Args:
            start_limit_s: longest time until its first sign of life.
            idle_limit_s: longest time between two signs of life while no call is running.
        """
        self.state = CollectorState.STARTING
        self.in_call = 0
        self.record["idle_limit_s"] = idle_limit_s
        self._record_sign(start_limit_s)

    def end_collector(self) -> None:
        """Record that no collector runs. A call that the last collector died in counts as ended."""
        self.state = CollectorState.ABSENT
        self.in_call = 0

    def alive(self, limit_s: float | None = None) -> None:
        """Record a sign of life, which restarts the time limit.

        Args:
            limit_s: new time limit. None keeps the limit of the running call, or the idle limit outside of calls.
        """
        current_s = float(self.record["limit_s" if self.in_call else "idle_limit_s"][0])
        self._record_sign(current_s if limit_s is None else limit_s)

    @property
    def state(self) -> CollectorState:
        """The collector's present state."""
        return _STATES[int(self.record["state"][0])]

    @state.setter
    def state(self, state: CollectorState) -> None:
        self.record["state"] = _STATES.index(state)

    @contextlib.contextmanager
    def calling(self, limit_s: float) -> Iterator[None]:
        """Mark a call that may hang: until the ``with`` block ends, the time limit is ``limit_s``."""
        self._record_sign(limit_s)
        self.in_call = 1
        try:
            yield
        finally:
            self.in_call = 0
            self.alive()

    def read(self) -> Snapshot:
        """Return the block's present content."""
        block = self.record[0]
        return Snapshot(
            state=self.state,
            episodes=self.episodes,
            ticks=self.ticks,
            in_call=bool(block["in_call"]),
            silent_s=max(0.0, time.monotonic() - float(block["last_sign_s"])),
            limit_s=float(block["limit_s"]),
        )

    def mirror(self, remote: Snapshot) -> None:
        """Copy the status of a collector on another machine.

        The other machine has another clock, so the seconds since the last sign of life are copied, not its time.
        """
        self.state, self.episodes, self.ticks = remote.state, remote.episodes, remote.ticks
        self.in_call = int(remote.in_call)
        self._record_sign(remote.limit_s, remote.silent_s)

    def _record_sign(self, limit_s: float, ago_s: float = 0.0) -> None:
        # A longer limit is stored before the time, a shorter one after it. So a reader between the two stores never
        # combines an old time with a short limit.
        now_s = time.monotonic() - ago_s
        if limit_s >= float(self.record["limit_s"][0]):
            self.record["limit_s"] = limit_s
            self.record["last_sign_s"] = now_s
        else:
            self.record["last_sign_s"] = now_s
            self.record["limit_s"] = limit_s


class Pace(CollectorBlock):
    """The learner's block: a collector takes steps while its ring has fewer than ``step_limit``."""

    NAME = "pace"
    LAYOUT = np.dtype([("step_limit", "i8")])
    step_limit = Count()
    """Number of steps in the collector's ring at which the collector waits."""
