"""Where a collector drives: which town training is in, and when it goes on to the next one; where evaluations are.

Pure, but for the list of a folder's files. A town is a function of how many episodes have begun, which the replay on
disk knows whatever was killed: a run that resumes goes on in the same town.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carla_td3.config import AgentConfig, ConfigError, TownsConfig

SEED = "{seed}"


@dataclass(frozen=True)
class Station:
    """What one collector is for."""

    map: str | None
    """``simulator.map``; None keeps the simulator's."""
    until_episode: int | None = None
    """It begins no episode once it has begun so many in this run; None: it may always."""


@dataclass(frozen=True)
class Towns:
    """The stations of one collector."""

    config: TownsConfig | None
    map: str | None
    names: Sequence[str]
    first: int = 0
    """The number of the first town."""
    stride: int = 1
    """From one town's number to the next one's."""

    @classmethod
    def of(cls, config: AgentConfig, collector: int = 0) -> Towns:
        """Return a configuration's for a collector: of several, each drives in towns of its own.

        Raises:
            ConfigError: a folder of maps has none.
        """
        towns = config.training.towns
        names = () if towns is None else _named(towns.maps)
        return cls(towns, config.simulator.map, names, collector, config.training.collectors)

    def driving(self, episodes: int) -> Station:
        """Return where the collector's next episode is driven when so many of its own have begun."""
        if self.config is None:
            return Station(self.map)
        turn = episodes // self.config.every_episodes
        index = self.first + turn * self.stride
        name = self.names[index % len(self.names)].replace(SEED, str(self.config.first_seed + index))
        return Station(name, (turn + 1) * self.config.every_episodes)

    def evaluating(self, episodes: int) -> Station:
        """Return where evaluations are: without a map of their own, where is driven."""
        if self.config is None or self.config.evaluation_map is None:
            return self.driving(episodes)
        return Station(self.config.evaluation_map, 0)


def _named(maps: Sequence[str]) -> list[str]:
    """Return the maps, each folder's .xodr files in its place."""
    found: list[str] = []
    for name in maps:
        files = [str(path) for path in sorted(Path(name).glob("*.xodr"))] if Path(name).is_dir() else [name]
        if not files:
            raise ConfigError(f"training.towns.maps has {name}, a folder without .xodr files: give one that has some.")
        found += files
    return found
