"""The batches of updates: each is a function of the seed, the update's number and the present rows.

Owns the choice of rows (the run's, and a share of demonstrations; half in RLPD, Ball et al. 2023), the length of
returns and the erasing of frames. No generator state can be lost. Writes no ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from carla_run.paths import RunPaths
from carla_td3 import config as configuration
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.pins import Pin, pinned
from carla_td3.seeding import Purpose, generator
from carla_td3.td3.replay.damage import undamaged
from carla_td3.td3.replay.frames import FrameStack, erase
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.replay.sampling import Rings, Source


def _no_log(*_: object, **__: object) -> None:
    pass


class Batches:
    """Batches of one run.

    Args:
        config: of the run.
        log: writes an event: its name, its cause, and numbers by name.

    Raises:
        ReplayError, ConfigError: its demonstrations can't be used.
    """

    def __init__(self, config: AgentConfig, log: Callable[..., None] = _no_log) -> None:
        self._config = config
        self._demonstrations = None if config.replay.demonstrations is None else demonstrations(config, log)

    @cached_property
    def _batch(self) -> Batch:
        """Memory of all batches, made only after the dry run has freed its own."""
        td3, privileged = self._config.td3, privileged_numbers(self._config.environment)
        return Batch.empty(td3.batch_size, _seen(self._config), td3.n_step, privileged)

    def draw(self, own: Source, update: int) -> Batch:
        """Return the batch of an update on the CPU; the next one overwrites it."""
        td3, at = self._config.td3, 0
        for source, rows, rng in self._parts(own, update):
            source.sample(rows, rng, None, td3.n_step, td3.gamma, self._batch[at : at + rows])
            at += rows
        if td3.random_erasing:
            erase(self._batch.frames.numpy(), td3.random_erasing, generator(self._config.seed, Purpose.ERASING, update))
        return self._batch

    def fetch(self, own: Source, update: int) -> None:
        """Ask the kernel to read the frames that ``draw`` will use."""
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
        """Return the share of demonstrations in a batch: their share of all rows, while that is larger than configured.

        An encoder that sees only the first few drives, over and over, learns them by heart for good.
        """
        return max(self._config.replay.demonstration_share, shown / (shown + own))


def demonstrations(config: AgentConfig, log: Callable[..., None] = _no_log) -> Source:
    """Return the undamaged rows of ``replay.demonstrations``: of ``python -m carla_td3 record``, or any run's.

    Raises:
        ReplayError: it holds no replay, an empty one, or one of other rows.
        ConfigError: its rows were recorded in another environment.
    """
    run = RunPaths(Path(config.replay.demonstrations or ""))
    folders = list(run.rings().values()) or [run.replay]
    rings = [undamaged(folder, _seen(config), log) for folder in folders]
    for ring in rings:
        ring.layout.require_privileged(ring.directory, privileged_numbers(config.environment))
    held = [ring for ring in rings if ring.steps]
    if not held:
        rings[0].require_steps()
    require_recorded_alike(run, config, f"replay.demonstrations {run.path}", "record it again")
    return Rings(held)


def require_recorded_alike(run: RunPaths, config: AgentConfig, what: str, mend: str, but: Sequence[str] = ()) -> None:
    """Raise ConfigError, a sentence about ``what``, if rows of a run were recorded with other values than these.

    Args:
        but: keys that may differ.
        mend: what to do, besides setting the key.
    """
    recorded = _recorded(configuration.load(run.config))
    for key, value in _recorded(config).items():
        if recorded[key] != value and key not in but:
            raise ConfigError(
                f"{what}: was recorded with {key} = {recorded[key]}, the configuration says {value}: {mend}, or set "
                f"{key} to {recorded[key]}."
            )


def _seen(config: AgentConfig) -> FrameStack:
    return FrameStack.of(config.environment.camera).seen_by(config.td3.network)


def _recorded(config: AgentConfig) -> dict[str, Any]:
    """Return the configuration values that a row's numbers depend on, by dotted key."""
    found: dict[str, Any] = {}
    for key, value in pinned(config, Pin.ROWS).items():
        found |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    return found
