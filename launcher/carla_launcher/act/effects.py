"""The supervisor's injected effects and forecast; tests inject simulated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from carla_launcher.act.agent_requests import AgentRequests
from carla_launcher.act.runtime import Runtime
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.detectors.drive import DriveDetector
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
    """State of the run."""

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
    """A clock that stops while the machine is suspended (CLOCK_MONOTONIC); tests simulate it."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


@dataclass(frozen=True)
class Forecast:
    """The plan's predictions for every rung that the run may take.

    Attributes:
        ladder: the steps of each pool.
        base: values of the agent's configuration without any step, by dotted key.
        needs: takes overrides, returns the agent's predicted peak as far as known; never blocks.
        request_sizes: requests the peaks of overrides that ``needs`` will be asked for; waits for them if told to.
        bands: takes overrides and the simulator's quality, returns what simulator and agent should hold.
        on_cpu: returns the forecast for an agent on the CPU.
        program: the agent's program file.
        measured: takes note of the agent's peak in a phase with the values that hold; None where it says its sizes.
    """

    ladder: Ladder = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs = lambda _overrides: {}
    request_sizes: Callable[[Sequence[Mapping[str, Any]], bool], None] = lambda _overrides, _wait: None
    bands: Callable[[Mapping[str, Any], str | None], Mapping[BandKey, float]] = lambda _overrides, _quality: {}
    on_cpu: Callable[[], Forecast] | None = None
    program: ProgramFile = field(default_factory=ProgramFile)
    measured: Callable[[Mapping[str, Any], str, Mapping[PoolKind, float]], None] | None = None


@dataclass(frozen=True)
class Watched:
    """The observer and the detectors of one further simulator."""

    monitor: SimulatorMonitor
    drive: DriveDetector


@dataclass(frozen=True)
class Effects:
    """The effects of a supervisor.

    Attributes:
        holders: the record of each owner's memory, kept by ``diagnose``.
        expect: sets the bands of ``diagnose``.
        check: checks the simulator's health; the argument is whether a client may drive it.
        draw: returns random numbers in [-1, 1].
        further: observers and detectors of the simulators from the second collector on.
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
