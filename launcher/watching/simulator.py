"""The simulator as it shows from outside: process, idle connection, answers, log.

Owns the connection, the place in the log and when to ask. Starts, stops and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.act.runtime import Child
from launcher.config import WatchLimits
from launcher.watching.connection import IdleConnection
from launcher.watching.health import Address, Health
from launcher.watching.log_signs import signs_in
from launcher.watching.observation import Sign, SimulatorSeen
from launcher.watching.tail import Tail


@dataclass(frozen=True)
class Questions:
    """How a simulator is asked.

    Attributes:
        ready: whether it is one and moves; True if a client may be driving it (``health.check``).
        answers: whether it still answers (``health.answers``).
    """

    ready: Callable[[bool], Health]
    answers: Callable[[], Health]


class SimulatorEye:
    """Looks at one simulator after another, at one address.

    Args:
        external: somebody else runs it: there is no process and no log to look at.
        log: of the simulators to come; what it holds already is the past. None for an external one.
    """

    def __init__(self, address: Address, limits: WatchLimits, ask: Questions, external: bool, log: Path | None) -> None:
        self._limits, self._ask, self._external = limits, ask, external
        self._connection = IdleConnection(address)
        self._tail = None if log is None else Tail(log, from_end=True)
        self._child: Child | None = None
        self._ready = False
        self._asked_s = 0.0
        self._seen = SimulatorSeen(running=external)

    def look(self, now_s: float, child: Child | None, in_use: bool) -> SimulatorSeen:
        """Return what it is now; asks one question at most.

        Args:
            now_s: of the clock that observations go by.
            child: the process, None if there is none.
            in_use: whether a client may be driving it.
        """
        if child is not self._child:
            self._turn_to(child)
        ended = None if child is None else child.poll()  # the end first, the log after it: then it holds the last words
        seen = replace(self._seen, running=self._runs(ended is not None), ended=ended, signs=self._signs())
        seen = replace(seen, pid=0 if child is None else child.pid)
        if seen.running:
            seen = replace(seen, connection_lost=self._connection.look())
            seen = self._asked(seen, now_s, in_use)
        self._seen = seen
        return seen

    def close(self) -> None:
        """Let go of connection and log."""
        self._connection.close()
        if self._tail is not None:
            self._tail.close()

    def _turn_to(self, child: Child | None) -> None:
        """Begin with another simulator; its log is the file that is followed already, or a new one of its own."""
        self._child, self._ready, self._asked_s = child, False, 0.0
        self._seen = SimulatorSeen(running=self._external)
        self._connection.forget()
        if child is not None and (self._tail is None or self._tail.path != child.log):
            if self._tail is not None:
                self._tail.close()
            self._tail = Tail(child.log, from_end=False)

    def _runs(self, ended: bool) -> bool:
        return not ended and (self._child is not None or self._external)

    def _signs(self) -> tuple[tuple[Sign, str], ...]:
        return () if self._tail is None else signs_in(self._tail.look())

    def _asked(self, seen: SimulatorSeen, now_s: float, in_use: bool) -> SimulatorSeen:
        if seen.connection_lost:
            self._ready = self._ready and not self._external  # what comes back there has to show itself first
            return replace(seen, healthy=False, problem="its connection ended")
        if self._ready and now_s - self._asked_s < self._limits.check_every_s:
            return seen
        found = self._ask.answers() if self._ready else self._ask.ready(in_use)
        failed = 0 if found.ok or not self._ready else seen.checks_failed + 1
        self._ready, self._asked_s = self._ready or found.ok, now_s
        return replace(seen, healthy=found.ok, problem=found.problem, checks_failed=failed)
