"""Where a collector drives: the present town of the training, when it changes, and where evaluations are.

Pure, except for listing folders. The town is a function of how many episodes have begun, which the replay on disk knows
after any crash: a resumed run continues in the same town.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carla_td3.config import AgentConfig, ConfigError, TownsConfig

SEED = "{seed}"


@dataclass(frozen=True)
class Assignment:
    """Place and end of a collector's work."""

    map: str | None
    """``simulator.map``; None keeps the simulator's."""
    until_episode: int | None = None
    """It begins no episode after this many in this run; None for no limit."""


@dataclass(frozen=True)
class Towns:
    """The stations of one collector."""

    config: TownsConfig | None
    map: str | None
    names: Sequence[str]
    first: int = 0
    """Number of the first town."""
    stride: int = 1
    """Step from one town's number to the next."""

    @classmethod
    def of(cls, config: AgentConfig, collector: int = 0) -> Towns:
        """Return the towns of a collector; several collectors drive in different towns.

        Raises:
            ConfigError: a folder of maps has none.
        """
        towns = config.training.towns
        names = () if towns is None else _named(towns.maps)
        return cls(towns, config.simulator.map, names, collector, config.training.collectors)

    def driving(self, episodes: int) -> Assignment:
        """Return the station of the collector's next episode after this many of its episodes."""
        if self.config is None:
            return Assignment(self.map)
        turn = episodes // self.config.every_episodes
        index = self.first + turn * self.stride
        name = self.names[index % len(self.names)].replace(SEED, str(self.config.first_seed + index))
        return Assignment(name, (turn + 1) * self.config.every_episodes)

    def evaluating(self, episodes: int) -> Assignment:
        """Return the station of evaluations: the present one if they have no map."""
        if self.config is None or self.config.evaluation_map is None:
            return self.driving(episodes)
        return Assignment(self.config.evaluation_map, 0)


def _named(maps: Sequence[str]) -> list[str]:
    """Return the maps, with each folder replaced by its .xodr files."""
    found: list[str] = []
    for name in maps:
        files = [str(path) for path in sorted(Path(name).glob("*.xodr"))] if Path(name).is_dir() else [name]
        if not files:
            raise ConfigError(f"training.towns.maps has {name}, a folder without .xodr files: give one that has some.")
        found += files
    return found
