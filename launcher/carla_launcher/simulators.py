"""The simulators that a run can have: how each is started and waited for, and what it needs.

What differs between them stands here; nothing else asks which one a run has.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from carla_launcher.config import SimulatorLimits
from carla_launcher.observe.health import Address
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RunOptions, RuntimeKind, SimulatorKind

PORTS = 3
"""Neighbouring ports that a simulator is given."""
INTERPRETER = (sys.executable,)


class Simulator(ABC):
    """What a run drives in."""

    ours: ClassVar[bool] = True
    """It is started and restarted here; otherwise it already runs."""
    needs_card: ClassVar[bool] = False
    gpu_stack: ClassVar[bool] = True
    """Compose gives the run's containers a card."""
    limit_key: ClassVar[str]
    """Of the launcher's configuration: how long its start may take."""
    compose_files: ClassVar[tuple[str, ...]] = ("docker-compose.yml",)

    def __init__(self, options: RunOptions) -> None:
        self._options = options

    def start_limit(self, limits: SimulatorLimits) -> tuple[str, float]:
        """Return the key and the value, in seconds, of the limit for its start."""
        return f"simulator.{self.limit_key}", getattr(limits, self.limit_key)

    def quality(self, limits: SimulatorLimits) -> str | None:  # noqa: ARG002 - CARLA's goes by them
        """Return what it starts with; None where it knows no quality."""
        return None

    @property
    def ports(self) -> int:
        """Return how many neighbouring ports have to be free for it here."""
        return PORTS

    @abstractmethod
    def command(
        self,
        limits: SimulatorLimits,
        quality: str | None,
        address: Address,
        interpreter: tuple[str, ...] = INTERPRETER,
    ) -> tuple[str, ...]:
        """Return the command line of a local one; empty where nothing is started."""

    @property
    def cards(self) -> Cards:
        """Return the cards of simulator and agent as the driver counts."""
        return self._options.gpu or Cards()


class Carla(Simulator):
    """CARLA: it draws on a card, in one of two qualities, and takes up to three minutes to start when it is cold."""

    needs_card = True
    limit_key = "start_limit_s"

    def quality(self, limits: SimulatorLimits) -> str | None:
        """Return what it starts with."""
        return self._options.quality or limits.quality

    def command(
        self,
        limits: SimulatorLimits,
        quality: str | None,
        address: Address,
        interpreter: tuple[str, ...] = INTERPRETER,  # noqa: ARG002 - carla-lite's
    ) -> tuple[str, ...]:
        """Return the configured command of an installed CARLA."""
        installed = limits.installed(quality or limits.quality, address.port, self.cards.simulator)
        return (*installed, *self._options.simulator_args)


class CarlaLite(Simulator):
    """carla-lite: no card and no quality."""

    gpu_stack = False
    limit_key = "lite_start_limit_s"
    compose_files = ("docker-compose.yml", "docker-compose.lite.yml")

    @property
    def ports(self) -> int:
        """Return how many neighbouring ports have to be free; Compose publishes as many as CARLA has."""
        return 2 if self._options.runtime is RuntimeKind.PROCESS else PORTS

    def town(self, limits: SimulatorLimits) -> tuple[str, int]:
        """Return its map and seed."""
        options = self._options
        return options.map or limits.map, limits.seed if options.seed is None else options.seed

    def command(
        self,
        limits: SimulatorLimits,
        quality: str | None,  # noqa: ARG002 - it has none
        address: Address,
        interpreter: tuple[str, ...] = INTERPRETER,
    ) -> tuple[str, ...]:
        """Return how its package is run."""
        town, seed = self.town(limits)
        where = ("--host", address.host, "--port", str(address.port))
        folder = () if limits.map_dir is None else ("--map-dir", str(limits.map_dir))
        run = (*interpreter, "-m", "carla_lite", *where, "--map", town, *folder, "--seed", str(seed))
        return (*run, *self._options.simulator_args)


class Elsewhere(Simulator):
    """A simulator that others started: it is waited for, and neither started nor stopped."""

    ours = False
    limit_key = "running_limit_s"

    def command(self, *_: object) -> tuple[str, ...]:
        """Return nothing: it runs already."""
        return ()


_CLASSES: Mapping[SimulatorKind, Callable[[RunOptions], Simulator]] = {
    SimulatorKind.CARLA: Carla,
    SimulatorKind.LITE: CarlaLite,
    SimulatorKind.ELSEWHERE: Elsewhere,
}


def simulator_of(options: RunOptions) -> Simulator:
    """Return the simulator of resolved options; a choice that is still open is CARLA's."""
    return _CLASSES.get(options.simulator, Carla)(options)
