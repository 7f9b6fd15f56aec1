"""The collector's status and its step limit: two small blocks of numbers in mapped files.

Owns their layout. Times are CLOCK_MONOTONIC, which all processes of a machine share. Knows no policy.
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
    """Episodes ended in all collectors of this run."""
    ticks: int
    """Simulator ticks in all collectors of this run."""
    in_call: bool
    """Whether a call into the environment is running."""
    silent_s: float
    """Seconds since the last sign of life."""
    limit_s: float
    """How long the silence may last."""

    @property
    def outstanding_s(self) -> float:
        """How long the running call has taken; 0 if none is running."""
        return self.silent_s if self.in_call else 0.0

    @property
    def overdue(self) -> bool:
        """Whether the collector hangs, in a call or outside."""
        return self.silent_s > self.limit_s


class Status(CollectorBlock):
    """The collector's block: the collector writes, the learner reads and clears it between two collectors."""

    NAME = "status"
    LAYOUT = np.dtype(
        [
            *((name, "i8") for name in ("state", "episodes", "ticks", "in_call")),
            *((name, "f8") for name in ("sign_s", "limit_s", "idle_limit_s")),
        ]
    )
    ticks = Count()
    """Simulator ticks in all collectors of this run."""
    episodes = Count()
    """Training episodes ended in all collectors of this run."""
    in_call = Count()
    """1 while a call into the environment is running, else 0."""

    def begin_collector(self, start_limit_s: float, idle_limit_s: float) -> None:
        """Record that a new process starts.

        Args:
            start_limit_s: limit until its first sign of life.
            idle_limit_s: limit between two signs of life outside of calls.
        """
        self.state = CollectorState.STARTING
        self.in_call = 0
        self.record["idle_limit_s"] = idle_limit_s
        self._sign(start_limit_s)

    def end_collector(self) -> None:
        """Record that there is no collector: the call that the last one died in is no longer running."""
        self.state = CollectorState.ABSENT
        self.in_call = 0

    def alive(self, limit_s: float | None = None) -> None:
        """Give a sign of life; within a call its time limit starts again, with ``limit_s`` if given."""
        current_s = float(self.record["limit_s" if self.in_call else "idle_limit_s"][0])
        self._sign(current_s if limit_s is None else limit_s)

    @property
    def state(self) -> CollectorState:
        """The collector's present state."""
        return _STATES[int(self.record["state"][0])]

    @state.setter
    def state(self, state: CollectorState) -> None:
        self.record["state"] = _STATES.index(state)

    @contextlib.contextmanager
    def calling(self, limit_s: float) -> Iterator[None]:
        """Mark a call that may never return."""
        self._sign(limit_s)
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
            silent_s=max(0.0, time.monotonic() - float(block["sign_s"])),
            limit_s=float(block["limit_s"]),
        )

    def mirror(self, there: Snapshot) -> None:
        """Copy the status of a collector on another machine. Its clock differs, so the silence is copied."""
        self.state, self.episodes, self.ticks = there.state, there.episodes, there.ticks
        self.in_call = int(there.in_call)
        self._sign(there.limit_s, there.silent_s)

    def _sign(self, limit_s: float, ago_s: float = 0.0) -> None:
        # The longer limit first: a reader between the two stores must not combine an old time with a short limit.
        now_s = time.monotonic() - ago_s
        if limit_s >= float(self.record["limit_s"][0]):
            self.record["limit_s"] = limit_s
            self.record["sign_s"] = now_s
        else:
            self.record["sign_s"] = now_s
            self.record["limit_s"] = limit_s


class Pace(CollectorBlock):
    """The learner's block: the collector takes steps while it has fewer than ``step_limit``."""

    NAME = "pace"
    LAYOUT = np.dtype([("step_limit", "i8")])
    step_limit = Count()
    """Steps in the collector's ring at which it waits."""
