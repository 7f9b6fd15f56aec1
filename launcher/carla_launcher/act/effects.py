"""What the supervisor touches, and what it is given before it begins; tests give simulated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from carla_launcher.act.agent_requests import AgentRequests
from carla_launcher.act.runtime import Runtime
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.detectors.drive import Drive
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.decide.holders import Holders
from carla_launcher.decide.ladder import Ladder, Needs
from carla_launcher.observe.health import Health
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.observer import RunObserver
from carla_launcher.observe.pools import PoolKind
from carla_launcher.observe.simulator import SimulatorMonitor
from carla_run.configuration.program_file import ProgramFile
from carla_run.signals import StopRequests


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
        measured: takes note of the agent's peak with the values that hold; None where it says itself what it takes.
    """

    ladder: Ladder = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs = lambda _overrides: {}
    ask_ahead: Callable[[Sequence[Mapping[str, Any]], bool], None] = lambda _overrides, _wait: None
    bands: Callable[[Mapping[str, Any], str | None], Mapping[BandKey, float]] = lambda _overrides, _quality: {}
    on_cpu: Callable[[], Forecast] | None = None
    program: ProgramFile = field(default_factory=ProgramFile)
    measured: Callable[[Mapping[str, Any], Mapping[PoolKind, float]], None] | None = None


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
    observer: RunObserver
    diagnose: Callable[[Observation], tuple[Finding, ...]]
    holders: Holders
    check: Callable[[bool], Health]
    requests: AgentRequests
    clock: Clock
    draw: Callable[[], float]
    stop: StopRequests
    say: Callable[[str], None]
    expect: Callable[[Mapping[BandKey, float]], None] = lambda _bands: None
    further: tuple[Watched, ...] = ()
