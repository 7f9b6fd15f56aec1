"""One program's life, whichever it is: simulator, agent, or a simulator of another collector or machine.

::

    DOWN ──start──► STARTING ──healthy──► HEALTHY      an agent is healthy as soon as it is started
      ▲                │                     │
      └──fail, stop, kill, forget────────────┘         down until ``due_s``; for ever where no restart mends it

Two drivers are below it, a local process and a container (``runtime.Child``). Records and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum

from carla_launcher.act.runtime import Child, Role, Runtime, Start, StartError
from carla_launcher.config import AgentLimits, SimulatorLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import delay_s, failures_in_a_row
from carla_launcher.observe.observation import Ended, SimulatorSeen
from carla_run.readers import last_lines

Script = Generator[None, None, None]
"""What waits by yielding."""
Probe = Callable[[float, Child], tuple[SimulatorSeen, Finding | None]]
"""From the time and a simulator to what is seen of it, and what is wrong with it."""


class Life(str, Enum):
    """Where a program stands."""

    DOWN = "down"
    STARTING = "starting"
    HEALTHY = "healthy"


@dataclass(frozen=True)
class Failed:
    """A program that was put away: why, and how long is waited before its next start, if a restart may mend it."""

    finding: Finding
    wait_s: float


class SupervisedProcess:
    """A program that is started, watched, stopped and started again.

    Attributes:
        child: its process or container; one that has ended stays until it is forgotten.
        started_s: when it last was; of the clock that all of it goes by.
        healthy_s: when it was first healthy after that; None if it hasn't been yet.
        due_s: when it is to be started next.
        failures: without a stable time between them.
    """

    def __init__(
        self,
        runtime: Runtime,
        role: Role,
        limits: SimulatorLimits | AgentLimits,
        number: int = 0,
        failures: int = 0,
        draw: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Start nothing yet; ``draw`` gives numbers in [-1, 1] that spread the back-off."""
        self.role, self.number, self.failures = role, number, failures
        self.child: Child | None = None
        self.quality: str | None = None
        self.started_s = self.due_s = 0.0
        self.healthy_s: float | None = None
        self._runtime, self._limits, self._draw = runtime, limits, draw

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.role.value} {self.number}" if self.number else self.role.value

    @property
    def life(self) -> Life:
        """Where it stands."""
        if not self.lives:
            return Life.DOWN
        return Life.STARTING if self.healthy_s is None else Life.HEALTHY

    @property
    def lives(self) -> bool:
        """Return whether it was started and hasn't ended."""
        return self.child is not None and self.child.poll() is None

    @property
    def ended(self) -> Ended | None:
        """Return how it ended; None if it wasn't started, or lives."""
        return None if self.child is None else self.child.poll()

    def pids(self) -> frozenset[int]:
        """Return the ids of all its processes now."""
        return frozenset() if self.child is None else self.child.pids()

    def well_for_s(self, now_s: float) -> float:
        """Return for how long it has been healthy."""
        return 0.0 if self.healthy_s is None else now_s - self.healthy_s

    def last_output(self, lines: int = 1) -> str:
        """Return the last lines of its log."""
        return "" if self.child is None else last_lines(self.child.log, lines)

    # Transitions

    def start(self, now_s: float, quality: str | None = None, resume: bool = False) -> Child:
        """Start it.

        Raises:
            StartError: it can't be started.
        """
        self.started_s, self.healthy_s, self.quality = now_s, None, quality
        self.child = self._runtime.start(Start(self.role, quality, resume, self.number))
        return self.child

    def look(self, now_s: float, quality: str | None, start_limit_s: float, probe: Probe) -> Life | Failed | None:
        """Move on by one transition, tried as long as the run lasts; return it, None if there was none.

        Args:
            now_s: now.
            quality: for a start.
            start_limit_s: without being healthy once for longer, it has failed.
            probe: asked while there is one.
        """
        if self.child is None:
            return self._start_if_due(now_s, quality)
        seen, found = probe(now_s, self.child)
        if found is not None:
            return self.fail(found, now_s)
        if self.healthy_s is not None:
            return None
        if seen.healthy:
            self.healthy_s = now_s
            return Life.HEALTHY
        if now_s - self.started_s > start_limit_s:
            late = f"it isn't ready after {start_limit_s:g} s: {seen.problem}"
            return self.fail(Finding(Cause.SIMULATOR_NOT_READY, late), now_s)
        return None

    def _start_if_due(self, now_s: float, quality: str | None) -> Life | Failed | None:
        if now_s < self.due_s:
            return None
        try:
            self.start(now_s, quality)
        except StartError as error:
            return self.fail(Finding(Cause.SIMULATOR_CRASH, str(error)), now_s)
        return Life.STARTING

    def fail(self, finding: Finding, now_s: float) -> Failed:
        """Put it away; it is due again after its back-off, beyond its budget after the longest one."""
        limits = self._limits.restarts
        waits_s = delay_s(self.count_failure(now_s), limits, self._draw())
        waits_s = limits.longest_delay_s if waits_s is None else waits_s
        self.due_s = float("inf") if finding.cause is Cause.MISCONFIGURATION else now_s + waits_s
        self.forget()
        return Failed(finding, waits_s)

    def count_failure(self, now_s: float) -> int:
        """Count a failure, and return how many there were in a row."""
        self.failures = failures_in_a_row(self.failures, self.well_for_s(now_s), self._limits.restarts)
        return self.failures

    def stop(
        self, now_s: Callable[[], float], cut_short: Callable[[], bool], about_to_kill: Callable[[str], None]
    ) -> Script:
        """Have it end within its grace; it is killed after that, or where that is cut short."""
        if self.child is None:
            return
        self.child.terminate()
        until_s = now_s() + self._limits.stop_grace_s
        while self.lives:
            twice = cut_short()
            if twice or now_s() >= until_s:
                about_to_kill("a second request" if twice else "its grace is over")
                self.child.kill()
            else:
                yield

    def kill(self) -> None:
        """End it at once, if it lives."""
        if self.child is not None and self.child.poll() is None:
            self.child.kill()

    def forget(self) -> None:
        """Let go of it; what still runs of it is killed."""
        self.kill()
        self.child, self.healthy_s = None, None
