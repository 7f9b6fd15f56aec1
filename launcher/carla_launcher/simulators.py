"""The simulators that a run can have: how each is started and waited for, what it needs, and its first figures.

What differs between them stands here; nothing else asks which one a run has.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from carla_launcher.config import CarlaSizes, SimulatorLimits
from carla_launcher.observe.health import Address
from carla_launcher.observe.pools import Cards, Figure, PoolKind, estimated
from carla_launcher.options import RunOptions, SimulatorKind

PORTS = 3
"""Neighbouring ports that a simulator is given."""
INTERPRETER = (sys.executable,)
Peaks = dict[str, dict[PoolKind, Figure]]
"""By quality, the finest first, and pool."""


@dataclass(frozen=True)
class Simulator(ABC):
    """What a run drives in, as it was asked for.

    Attributes:
        map: None where the launcher's configuration names it; ``seed`` and ``finest`` likewise.
        finest: the quality, of one that knows any.
        arguments: passed on to it.
        card: that it draws on, by index.
    """

    map: str | None = None
    seed: int | None = None
    finest: str | None = None
    arguments: tuple[str, ...] = ()
    card: int = 0

    kind: ClassVar[SimulatorKind]
    label: ClassVar[str]
    """What people call it."""
    ours: ClassVar[bool] = True
    """It is started and restarted here; otherwise it already runs."""
    exists: ClassVar[bool] = True
    needs_card: ClassVar[bool] = False
    gpu_stack: ClassVar[bool] = True
    """Compose gives the run's containers a card."""
    limit_key: ClassVar[str]
    """Of the launcher's configuration: how long its start may take."""
    ram_key: ClassVar[str] = ""
    """Of the launcher's configuration: what it takes of RAM until that was measured."""
    figures_as: ClassVar[str] = ""
    """In place of a quality, by which figures are kept; empty for one that knows some."""
    compose_files: ClassVar[tuple[str, ...]] = ("docker-compose.yml",)
    ports: ClassVar[int] = PORTS
    """Neighbouring ports that it listens on as a local process; Compose publishes as many as CARLA has."""

    def start_limit(self, limits: SimulatorLimits) -> tuple[str, float]:
        """Return the key and the value, in seconds, of the limit for its start."""
        return f"simulator.{self.limit_key}", getattr(limits, self.limit_key)

    def quality(self, limits: SimulatorLimits) -> str | None:  # noqa: ARG002 - CARLA's goes by them
        """Return what it starts with; None where it knows no quality."""
        return None

    def town(self, limits: SimulatorLimits) -> tuple[str, int] | None:  # noqa: ARG002 - carla-lite's goes by them
        """Return the map and the seed that it is started with; None where the agent loads its map."""
        return None

    def first_figures(self, sizes: CarlaSizes) -> Peaks:  # noqa: ARG002 - those that are started go by them
        """Return what it takes until that was measured."""
        return {}

    @abstractmethod
    def command(
        self,
        limits: SimulatorLimits,
        quality: str | None,
        address: Address,
        interpreter: tuple[str, ...] = INTERPRETER,
    ) -> tuple[str, ...]:
        """Return the command line of a local one; empty where nothing is started."""


class Carla(Simulator):
    """CARLA: it draws on a card, in one of two qualities, and takes up to three minutes to start when it is cold."""

    kind, label = SimulatorKind.CARLA, "CARLA"
    needs_card = True
    limit_key = "start_limit_s"
    ram_key = "sizes.ram_mib"

    def quality(self, limits: SimulatorLimits) -> str | None:
        """Return what it starts with."""
        return self.finest or limits.quality

    def first_figures(self, sizes: CarlaSizes) -> Peaks:
        """Return what it takes at each quality."""
        mib, ram = sizes.vram_mib, estimated(sizes.ram_mib)
        return {
            "Epic": {PoolKind.VRAM: estimated(mib["Epic"]), PoolKind.RAM: ram},
            "Low": {PoolKind.VRAM: estimated(mib["Low"]), PoolKind.RAM: ram},
        }

    def command(
        self,
        limits: SimulatorLimits,
        quality: str | None,
        address: Address,
        interpreter: tuple[str, ...] = INTERPRETER,  # noqa: ARG002 - carla-lite's
    ) -> tuple[str, ...]:
        """Return the configured command of an installed CARLA."""
        return (*limits.installed(quality or limits.quality, address.port, self.card), *self.arguments)


class CarlaLite(Simulator):
    """carla-lite: no card and no quality."""

    kind, label = SimulatorKind.LITE, "carla-lite"
    gpu_stack = False
    limit_key = "lite_start_limit_s"
    ram_key = "sizes.lite_ram_mib"
    figures_as = "lite"
    compose_files = ("docker-compose.yml", "docker-compose.lite.yml")
    ports = 2

    def town(self, limits: SimulatorLimits) -> tuple[str, int]:
        """Return its map and seed."""
        return self.map or limits.map, limits.seed if self.seed is None else self.seed

    def first_figures(self, sizes: CarlaSizes) -> Peaks:
        """Return what it takes of RAM."""
        return {self.figures_as: {PoolKind.RAM: estimated(sizes.lite_ram_mib)}}

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
        return (*run, *self.arguments)


class Elsewhere(Simulator):
    """A simulator that others started, or a cluster's nodes: it is waited for, and neither started nor stopped."""

    kind, label = SimulatorKind.ELSEWHERE, "simulator elsewhere"
    ours = False
    limit_key = "running_limit_s"

    def command(self, *_: object) -> tuple[str, ...]:
        """Return nothing: it runs already."""
        return ()


class NoSimulator(Elsewhere):
    """No simulator: for a program that drives none, on a card that others use too."""

    kind, label = SimulatorKind.NONE, "no simulator"
    exists = False


NAMED: Mapping[SimulatorKind, type[Simulator]] = {
    each.kind: each for each in (Carla, CarlaLite, Elsewhere, NoSimulator)
}
"""By what ``--simulator`` names; ``auto`` leaves it open."""


def asked_for(options: RunOptions) -> type[Simulator] | None:
    """Return the simulator that options come to on any machine; None where it is the machine that decides."""
    elsewhere = options.simulator_host is not None or options.cluster is not None
    return Elsewhere if elsewhere else NAMED.get(options.simulator)


def simulator_of(options: RunOptions) -> Simulator:
    """Return the simulator of resolved options; a choice that is still open is CARLA's."""
    card = (options.gpu or Cards()).simulator
    return (asked_for(options) or Carla)(options.map, options.seed, options.quality, options.simulator_args, card)
