"""The kinds of simulators: command, ports, start limit, requirements and estimated memory of each.

All differences between them are in this module.
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
"""Consecutive ports that each simulator gets."""
INTERPRETER: tuple[str, ...] = (sys.executable,)
"""Command that runs ``-m carla_td3`` and ``-m carla_lite``."""
Peaks = dict[str, dict[PoolKind, Figure]]
"""Peaks by quality, the finest first, and by pool kind."""


@dataclass(frozen=True)
class Simulator(ABC):
    """A run's simulator, as the options ask for it.

    Attributes:
        map: the map; None for the one in the launcher's configuration. The same holds for ``seed`` and ``finest``.
        finest: the quality without any step; unused by a simulator without qualities.
        arguments: further arguments of its command.
        card: index of the GPU that it renders on.
    """

    map: str | None = None
    seed: int | None = None
    finest: str | None = None
    arguments: tuple[str, ...] = ()
    card: int = 0

    kind: ClassVar[SimulatorKind]
    label: ClassVar[str]
    """Name for messages."""
    ours: ClassVar[bool] = True
    """The launcher starts and restarts it; otherwise it already runs."""
    exists: ClassVar[bool] = True
    needs_card: ClassVar[bool] = False
    gpu_stack: ClassVar[bool] = True
    """Compose gives the run's containers a GPU."""
    limit_key: ClassVar[str]
    """Key of the launcher's configuration for the time limit of its start."""
    ram_key: ClassVar[str] = ""
    """Key of the launcher's configuration for its estimated RAM."""
    figures_as: ClassVar[str] = ""
    """Name under which its figures are kept, if it has no qualities; otherwise empty."""
    compose_files: ClassVar[tuple[str, ...]] = ("docker-compose.yml",)
    ports: ClassVar[int] = PORTS
    """Consecutive ports that it listens on as a local process; Compose always publishes CARLA's three."""

    def start_limit(self, limits: SimulatorLimits) -> tuple[str, float]:
        """Return the key and the value in seconds of the time limit for its start."""
        return f"simulator.{self.limit_key}", getattr(limits, self.limit_key)

    def quality(self, limits: SimulatorLimits) -> str | None:  # noqa: ARG002 - CARLA's uses them
        """Return the quality that it starts with; None if it has none."""
        return None

    def town(self, limits: SimulatorLimits) -> tuple[str, int] | None:  # noqa: ARG002 - carla-lite's uses them
        """Return the map and the seed that it starts with; None if the agent loads the map."""
        return None

    def first_figures(self, sizes: CarlaSizes) -> Peaks:  # noqa: ARG002 - those that are started go by them
        """Return its estimated peaks."""
        return {}

    @abstractmethod
    def command(self, limits: SimulatorLimits, quality: str | None, address: Address) -> tuple[str, ...]:
        """Return the command line of a local process; empty if none is started."""


class Carla(Simulator):
    """CARLA: needs a GPU, has two qualities, and takes up to three minutes for a cold start."""

    kind, label = SimulatorKind.CARLA, "CARLA"
    needs_card = True
    limit_key = "start_limit_s"
    ram_key = "sizes.ram_mib"

    def quality(self, limits: SimulatorLimits) -> str | None:
        """Return the quality that it starts with."""
        return self.finest or limits.quality

    def first_figures(self, sizes: CarlaSizes) -> Peaks:
        """Return its estimated peaks at each quality."""
        mib, ram = sizes.vram_mib, estimated(sizes.ram_mib)
        return {
            "Epic": {PoolKind.VRAM: estimated(mib["Epic"]), PoolKind.RAM: ram},
            "Low": {PoolKind.VRAM: estimated(mib["Low"]), PoolKind.RAM: ram},
        }

    def command(self, limits: SimulatorLimits, quality: str | None, address: Address) -> tuple[str, ...]:
        """Return the configured command of an installed CARLA."""
        return (*limits.installed(quality or limits.quality, address.port, self.card), *self.arguments)


class CarlaLite(Simulator):
    """carla-lite: needs no GPU, has no qualities."""

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
        """Return its estimated RAM."""
        return {self.figures_as: {PoolKind.RAM: estimated(sizes.lite_ram_mib)}}

    def command(self, limits: SimulatorLimits, quality: str | None, address: Address) -> tuple[str, ...]:  # noqa: ARG002 - it has no quality
        """Return the command line that runs its package."""
        town, seed = self.town(limits)
        where = ("--host", address.host, "--port", str(address.port))
        folder = () if limits.map_dir is None else ("--map-dir", str(limits.map_dir))
        run = (*INTERPRETER, "-m", "carla_lite", *where, "--map", town, *folder, "--seed", str(seed))
        return (*run, *self.arguments)


class Elsewhere(Simulator):
    """A simulator that the launcher doesn't start: one that already runs, or those on a cluster's nodes."""

    kind, label = SimulatorKind.ELSEWHERE, "simulator elsewhere"
    ours = False
    limit_key = "running_limit_s"

    def command(self, *_: object) -> tuple[str, ...]:
        """Return no command, since it already runs."""
        return ()


class NoSimulator(Elsewhere):
    """No simulator: for a program that drives none, on a card that others use too."""

    kind, label = SimulatorKind.NONE, "no simulator"
    exists = False


NAMED: Mapping[SimulatorKind, type[Simulator]] = {
    each.kind: each for each in (Carla, CarlaLite, Elsewhere, NoSimulator)
}
"""Simulators by the values of ``--simulator`` other than auto."""


def drives_one(saved_options: Mapping[str, object]) -> bool:
    """Return whether a run that saved these options has a simulator."""
    return saved_options.get("simulator") != NoSimulator.kind


def asked_for(options: RunOptions) -> type[Simulator] | None:
    """Return the simulator that options ask for; None if it depends on the machine."""
    elsewhere = options.simulator_host is not None or options.cluster is not None
    return Elsewhere if elsewhere else NAMED.get(options.simulator)


def simulator_of(options: RunOptions) -> Simulator:
    """Return the simulator of resolved options; an open choice gives CARLA."""
    card = (options.gpu or Cards()).simulator
    return (asked_for(options) or Carla)(options.map, options.seed, options.quality, options.simulator_args, card)
