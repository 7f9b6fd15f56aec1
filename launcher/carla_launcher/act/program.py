"""The life cycle of one program: simulator, agent, or a simulator of another collector or machine.

::

    STOPPED ──start──► STARTING ──its probe says so──► UP          an agent is up as soon as it is started
       ▲               │      ▲                        │
       │               │      └────due────┐            │
       │               └───────fail──► BACKING_OFF ◄───┘
       └──stop, forget                 GIVEN_UP                    no restart mends it

Two drivers are below it, a local process and a container (``runtime.Child``); a simulator that runs elsewhere has none,
and is only probed. Each move is told before it is made, so that it can be recorded first. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import TypeVar

from carla_launcher.act.runtime import Child, Role, Runtime, Start, StartError
from carla_launcher.config import AgentLimits, SimulatorLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import StartsInVain, delay_s, failures_in_a_row
from carla_launcher.observe.observation import Ended, SimulatorSeen
from carla_run.readers import last_lines

T = TypeVar("T")
Waiting = Generator[None, None, T]
"""A generator that waits by yielding, and returns a result."""
Script = Waiting[None]
Probe = Callable[[float, "Child | None"], tuple[SimulatorSeen, "Finding | None"]]
"""Takes the time and a program, returns its observed state, and a finding if it has failed."""


class ProgramState(Enum):
    """State of a program."""

    STOPPED = "stopped"
    STARTING = "starting"
    UP = "up"
    BACKING_OFF = "backing_off"
    GIVEN_UP = "given_up"


class Transition(Enum):
    """A transition that is reported to the run; the event is named after the program's role and it."""

    ADOPTED = "adopted"
    STARTS = "starts"
    STARTED = "started"
    ENDS = "ends"
    """The launcher asks it to end."""
    KILLED = "killed"
    STOPPED = "stopped"
    RESTART = "restart"


class SupervisedProcess:
    """A program that is started, watched, stopped and started again.

    Attributes:
        state: of the program.
        child: its process or container; after its end it is kept until ``forget``.
        last: options of the last start.
        started_s: time of the last start or adoption, by the same clock as ``now_s``.
        due_s: time of the next start.
        failures: failures in a row without a stable time between them.
    """

    def __init__(
        self,
        runtime: Runtime | None,
        role: Role,
        limits: SimulatorLimits | AgentLimits,
        number: int = 0,
        *,
        failures: int = 0,
        start_limit: tuple[str, float] = ("", float("inf")),
        draw: Callable[[], float] = lambda: 0.0,
        tell: Callable[[SupervisedProcess, Transition, str], None] = lambda _program, _move, _cause: None,
    ) -> None:
        """Start nothing yet.

        Args:
            runtime: starts it; None if it runs elsewhere.
            role: what it is.
            limits: its grace, its budget and its delays.
            number: of several simulators.
            failures: that an earlier launcher counted.
            start_limit: how long it may take to be up, seconds, and the configuration's name for that.
            draw: gives numbers in [-1, 1] that spread the back-off.
            tell: hears of each move before it is made (of ``STARTED`` and ``STOPPED``, after that), with its cause.
        """
        self.role, self.number, self.failures, self.start_limit = role, number, failures, start_limit
        self.state, self.last = ProgramState.STOPPED, Start(role, number=number)
        self.child: Child | None = None
        self.started_s = self.due_s = self._up_s = 0.0
        self._runtime, self._limits, self._draw, self._tell = runtime, limits, draw, tell
        self._starts = StartsInVain()

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.role.value} {self.number}" if self.number else self.role.value

    @property
    def is_running(self) -> bool:
        """Return whether it was started and hasn't ended."""
        return self.child is not None and self.child.poll() is None

    @property
    def ended(self) -> Ended | None:
        """Return how it ended; None if it wasn't started, or still runs."""
        return None if self.child is None else self.child.poll()

    @property
    def is_up(self) -> bool:
        """Return whether it is up and hasn't ended."""
        return self.state is ProgramState.UP and self.ended is None

    @property
    def no_restart(self) -> str:
        """Return that it is given up, in words."""
        failed = f", since it failed {self.failures} times in a row before it was up" if self.failures > 1 else ""
        return f"it isn't restarted{failed}"

    def pids(self) -> frozenset[int]:
        """Return the ids of all its processes now."""
        return frozenset() if self.child is None else self.child.pids()

    def up_for_s(self, now_s: float) -> float:
        """Return for how long it has been up."""
        return now_s - self._up_s if self.state is ProgramState.UP else 0.0

    def last_output(self, lines: int = 1) -> str:
        """Return the last lines of its log."""
        return "" if self.child is None else last_lines(self.child.log, lines)

    # Transitions

    def start(self, now_s: float, quality: str | None = None, resume: bool = False) -> None:
        """Start it.

        Raises:
            StartError: it can't be started.
        """
        if self._runtime is not None:
            self.last = Start(self.role, quality, resume, self.number)
            self._tell(self, Transition.STARTS, "")
            self.child = self._runtime.start(self.last)
            self._tell(self, Transition.STARTED, "")
        self.state, self.started_s = ProgramState.STARTING, now_s

    def adopt(self, child: Child, now_s: float) -> None:
        """Take over a program that an earlier launcher left; whether it is up is still unknown."""
        self.child, self.state, self.started_s = child, ProgramState.STARTING, now_s

    def mark_up(self, now_s: float) -> None:
        """Record that it is up."""
        self.state, self._up_s = ProgramState.UP, now_s
        self._starts.progressed = True

    def look(self, now_s: float, quality: str | None, probe: Probe) -> ProgramState | Finding | None:
        """Move on by one transition; return it, or why it has failed, or None where nothing moved.

        A failed one is its owner's to put away: it may look at what is left of it first.

        Args:
            now_s: now.
            quality: for a start.
            probe: asked from the start on.
        """
        if self.state in (ProgramState.STOPPED, ProgramState.BACKING_OFF):
            return self._start_if_due(now_s, quality)
        if self.state is ProgramState.GIVEN_UP:
            return None
        seen, found = probe(now_s, self.child)
        if found is not None or self.state is ProgramState.UP:
            return found
        if seen.healthy:
            self.mark_up(now_s)
            return ProgramState.UP
        return self._late(now_s - self.started_s, seen.problem)

    def _start_if_due(self, now_s: float, quality: str | None) -> ProgramState | Finding | None:
        if now_s < self.due_s:
            return None
        try:
            self.start(now_s, quality)
        except StartError as error:
            return Finding(Cause.SIMULATOR_NOT_READY, str(error), exit_code=error.code)
        return ProgramState.STARTING

    def _late(self, waited_s: float, problem: str) -> Finding | None:
        key, limit_s = self.start_limit
        if waited_s < limit_s:
            return None
        sentence = f"it isn't ready after {waited_s:.0f} s ({key} is {limit_s:g} s): {problem}"
        return Finding(Cause.SIMULATOR_NOT_READY, sentence)

    def fail(self, finding: Finding, now_s: float) -> float:
        """Kill it and schedule a restart; return the delay, which is the longest one once the budget is used up.

        It is given up if no restart mends it: by its log, or because it was never up and ended the same way each time.
        """
        in_vain = self._starts.ended(finding.exit_code if finding.cause is Cause.SIMULATOR_CRASH else None)
        limits = self._limits.restarts
        wait_s = delay_s(self.count_failure(now_s), limits, self._draw())
        wait_s = limits.longest_delay_s if wait_s is None else wait_s
        self.forget()
        self.back_off(now_s + wait_s)
        if in_vain or finding.cause is Cause.MISCONFIGURATION:
            self.state = ProgramState.GIVEN_UP
        return wait_s

    def back_off(self, until_s: float) -> None:
        """Schedule its next start."""
        self.state, self.due_s = ProgramState.BACKING_OFF, until_s

    def count_failure(self, now_s: float) -> int:
        """Count a failure; return the number of failures in a row."""
        self.failures = failures_in_a_row(self.failures, self.up_for_s(now_s), self._limits.restarts)
        return self.failures

    def stop(self, now_s: Callable[[], float], cut_short: Callable[[], bool]) -> Script:
        """Ask it to end; kill it after its grace period, or once that is cut short."""
        if self.child is None:
            return
        self._tell(self, Transition.ENDS, "")
        self.child.terminate()
        until_s = now_s() + self._limits.stop_grace_s
        while self.is_running:
            twice = cut_short()
            if twice or now_s() >= until_s:
                self.kill("a second request to stop" if twice else "its grace period is over")
            else:
                yield
        self.state = ProgramState.STOPPED
        self._tell(self, Transition.STOPPED, "")

    def kill(self, cause: str = "") -> None:
        """Kill it if it runs; without a cause this isn't reported."""
        if self.child is not None and self.is_running:
            if cause:
                self._tell(self, Transition.KILLED, cause)
            self.child.kill()

    def forget(self, cause: str = "") -> None:
        """Kill it if it runs, and forget it."""
        self.kill(cause)
        self.child, self.state = None, ProgramState.STOPPED
