"""Conditions of a drive besides its route: the numbers of cars and pedestrians, and the weather.

Pure: a configuration and a generator in, numbers and names out. A fixed number draws nothing from the generator,
so that it doesn't change the other draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carla_td3.config import Amount, EnvironmentConfig


@dataclass(frozen=True)
class Conditions:
    """Conditions of one drive."""

    vehicles: int
    walkers: int
    weather: str | None
    """A preset of CARLA's; None keeps the present weather."""
    seed: int | None = None
    """All other cars and pedestrians are replaced and seeded with it; None keeps them."""
    restless: bool = False
    """Whether the route's lights change at random."""


def draw(config: EnvironmentConfig, rng: np.random.Generator, seed: int | None = None) -> Conditions:
    """Return the next drive's conditions, drawn from the configured ranges."""
    vehicles = _drawn(config.traffic.vehicles, rng)
    walkers = _drawn(config.traffic.walkers, rng)
    names = config.weather
    weather = names[_drawn((0, len(names) - 1), rng)] if names else None
    share = config.traffic.lights_restless
    # Not in a drive with a seed: other drivers drive it, too, and training must not change it.
    restless = seed is None and share > 0.0 and bool(rng.random() < share)
    return Conditions(vehicles, walkers, weather, seed, restless)


def from_seed(config: EnvironmentConfig, seed: int) -> Conditions:
    """Return the conditions of a seed, the same for every driver."""
    return draw(config, np.random.default_rng(seed), seed)


def _drawn(amount: Amount, rng: np.random.Generator) -> int:
    low, high = (amount, amount) if isinstance(amount, int) else amount
    return low if low == high else int(rng.integers(low, high + 1))
