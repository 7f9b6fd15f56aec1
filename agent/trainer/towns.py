"""Where a collector drives: which town training is in, and when it goes on to the next one; where evaluations are.

Pure, but for the list of a folder's files. A town is a function of how many episodes have begun, which the replay on
disk knows whatever was killed: a run that resumes goes on in the same town.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.config import AgentConfig, ConfigError, TownsConfig

SEED = "{seed}"


@dataclass(frozen=True)
class Station:
    """What one collector is for."""

    map: str | None
    """``simulator.map``; None keeps the simulator's."""
    until_episode: int | None = None
    """It begins no episode once so many have begun in this run; None: it may always."""


@dataclass(frozen=True)
class Towns:
    """The stations of one run."""

    config: TownsConfig | None
    map: str | None
    names: Sequence[str]

    @classmethod
    def of(cls, config: AgentConfig) -> Towns:
        """Return a configuration's.

        Raises:
            ConfigError: a folder of maps has none.
        """
        towns = config.training.towns
        return cls(towns, config.simulator.map, () if towns is None else _named(towns.maps))

    def driving(self, episodes: int) -> Station:
        """Return where the next episode is driven when so many have begun."""
        if self.config is None:
            return Station(self.map)
        index = episodes // self.config.every_episodes
        name = self.names[index % len(self.names)].replace(SEED, str(self.config.first_seed + index))
        return Station(name, (index + 1) * self.config.every_episodes)

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
