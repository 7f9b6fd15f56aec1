"""The batches that updates learn from: each is a function of the seed, the update's number and the rows there are.

Owns whose rows they are, the run's own and a share of demonstrations (half of them in RLPD, Ball et al. 2023), the
returns' length and what is erased of their frames. There is no generator whose state could be lost. Writes no ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carla_run import keys
from carla_run.paths import RunPaths
from carla_td3 import config as configuration
from carla_td3.config import AgentConfig, ConfigError, EnvironmentConfig
from carla_td3.seeding import Purpose, generator
from carla_td3.td3.replay.frames import FrameStack, erase
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import Batch, Replay
from carla_td3.td3.replay.sampling import Rings, Source

_RECORDED = ("action_rate", "camera", "reward", "route.point_spacing_m")
"""Of ``environment``: what a row's numbers come from."""


class Batches:
    """Of one run.

    Raises:
        ReplayError, ConfigError: its demonstrations can't be used.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._demonstrations = None if config.replay.demonstrations is None else demonstrations(config)

    def draw(self, own: Source, update: int) -> Batch:
        """Return the batch of an update on the CPU; its frames are overwritten by the next one."""
        td3 = self._config.td3
        parts = self._parts(own, update)
        drawn = [source.sample(rows, rng, None, td3.n_step, td3.gamma) for source, rows, rng in parts]
        batch = drawn[0] if len(drawn) == 1 else Batch.joined(drawn)
        if td3.random_erasing:
            erase(batch.frames.numpy(), td3.random_erasing, generator(self._config.seed, Purpose.ERASING, update))
        return batch

    def fetch(self, own: Source, update: int) -> None:
        """Have the frames read that ``draw`` will take."""
        for source, rows, rng in self._parts(own, update):
            source.fetch(rows, rng)

    def _parts(self, own: Source, update: int) -> Iterator[tuple[Source, int, np.random.Generator]]:
        size, seed = self._config.td3.batch_size, self._config.seed
        shown = 0 if self._demonstrations is None else round(size * self._share(self._demonstrations.steps, own.steps))
        if shown < size:
            yield own, size - shown, generator(seed, Purpose.SAMPLING, update)
        if self._demonstrations is not None and shown:
            yield self._demonstrations, shown, generator(seed, Purpose.DEMONSTRATIONS, update)

    def _share(self, shown: int, own: int) -> float:
        """Return the share of shown rows: that of all rows while these are more.

        Of the first few drives alone, seen over and over, an encoder keeps for good what it learned by heart.
        """
        return max(self._config.replay.demonstration_share, shown / (shown + own))


def demonstrations(config: AgentConfig) -> Source:
    """Return the rows of ``replay.demonstrations``, a folder as ``python -m carla_td3 record`` leaves it, or any run's.

    Raises:
        ReplayError: it holds no replay, an empty one, or one of other rows.
        ConfigError: its rows were recorded in another environment.
    """
    run = RunPaths(Path(config.replay.demonstrations or ""))
    folders = list(run.rings().values()) or [run.replay]
    stack = FrameStack.of(config.environment.camera).seen_by(config.td3.network)
    rings = [Replay.open(folder, stack=stack) for folder in folders]
    for ring in rings:
        ring.layout.require_privileged(ring.directory, privileged_numbers(config.environment))
    held = [ring for ring in rings if ring.steps]
    if not held:
        rings[0].require_steps()
    recorded = dict(_recorded(configuration.load(run.config).environment))
    for key, value in _recorded(config.environment):
        if recorded[key] != value:
            raise ConfigError(
                f"replay.demonstrations {run.path}: was recorded with environment.{key} = {recorded[key]}, the "
                f"configuration says {value}: record it anew, or set environment.{key} to {recorded[key]}."
            )
    return Rings(held)


def _recorded(environment: EnvironmentConfig) -> Iterator[tuple[str, Any]]:
    for key in _RECORDED:
        value = keys.at(environment.model_dump(mode="json"), key)
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", each) for name, each in value.items())
        else:
            yield key, value
