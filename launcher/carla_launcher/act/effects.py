"""What the supervisor touches, as interfaces, and what it is given before it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from carla_launcher.act.runtime import Child, Runtime
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.detectors.drive import Drive
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.decide.holders import Holders
from carla_launcher.decide.ladder import Ladder, Needs
from carla_launcher.observe.health import Health
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.simulator import SimulatorMonitor
from carla_run.configuration.program_file import ProgramFile
from carla_run.requests import Answer


class State(Enum):
    """Where the run stands."""

    INIT = "init"
    STARTING_SIMULATOR = "starting_simulator"
    WARMING = "warming"
    VERIFYING = "verifying"
    RUNNING = "running"
    PRESSURE = "pressure"
    DRAINING = "draining"
    APPLYING = "applying"
    BACKOFF = "backoff"
    STOPPING_SIMULATOR = "stopping_simulator"
    STOPPED = "stopped"


class Clock(Protocol):
    """Time that a suspended machine doesn't count (CLOCK_MONOTONIC); a simulated one in tests."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""


class StopAsked(Protocol):
    """Requests that the run ends."""

    @property
    def count(self) -> int:
        """How often."""

    @property
    def cause(self) -> str:
        """By what first; empty before one."""


class Requests(Protocol):
    """Requests to the agent, and the values that it starts with."""

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        """Ask; return the request's id."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer, None while there is none."""

    def drained_by_person(self) -> bool:
        """Return whether a person asked last, for a drain."""

    def write_overrides(self, values: Mapping[str, Any]) -> None:
        """Write the values for the agent's next start."""

    def started_with(self) -> dict[str, Any]:
        """Return the values with which the agent last started."""


class Observer(Protocol):
    """Looks at simulator, agent and memory."""

    def look(
        self, now_s: float, simulator: Child | None, agent: Child | None, further: frozenset[int] = frozenset(), /
    ) -> Observation:
        """Return what is there; None stands for a program that wasn't started, or was put away.

        ``further`` are the processes of the other simulators, whose memory is looked at as the first one's.
        """

    def expect_end(self, child: Child) -> None:
        """Take note that the launcher asks this program to end, before it does."""

    def close(self) -> None:
        """Let go of connection and files."""


@dataclass(frozen=True)
class Forecast:
    """What the plan says of the rungs on which the run may stand.

    Attributes:
        ladder: the steps of each pool.
        base: values of the agent's configuration without any step, by dotted key.
        needs: from overrides to the agent's predicted peak, as far as that is known; never takes time.
        ask_ahead: finds out about the overrides that ``needs`` will be asked about; waits for the answers if asked to.
        bands: what simulator and agent should hold, from overrides and the simulator's quality.
        on_cpu: returns the same as it is planned with the agent on the CPU.
        program: the agent's file.
    """

    ladder: Ladder = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs = lambda _overrides: {}
    ask_ahead: Callable[[Sequence[Mapping[str, Any]], bool], None] = lambda _overrides, _wait: None
    bands: Callable[[Mapping[str, Any], str | None], Mapping[BandKey, float]] = lambda _overrides, _quality: {}
    on_cpu: Callable[[], Forecast] | None = None
    program: ProgramFile = field(default_factory=ProgramFile)


@dataclass(frozen=True)
class Watched:
    """How one of several simulators is looked at, and what is made of it."""

    monitor: SimulatorMonitor
    drive: Drive


@dataclass(frozen=True)
class Effects:
    """What the supervisor touches.

    Attributes:
        holders: who holds what, and held, by what ``diagnose`` was shown.
        expect: has ``diagnose`` measure against these bands from now on.
        check: asks for health; the argument is whether the simulator is in use.
        draw: gives numbers in [-1, 1].
        further: how the simulators of the second collector on are watched.
    """

    runtime: Runtime
    observer: Observer
    diagnose: Callable[[Observation], tuple[Finding, ...]]
    holders: Holders
    check: Callable[[bool], Health]
    requests: Requests
    clock: Clock
    draw: Callable[[], float]
    stop: StopAsked
    say: Callable[[str], None]
    expect: Callable[[Mapping[BandKey, float]], None] = lambda _bands: None
    further: tuple[Watched, ...] = ()
