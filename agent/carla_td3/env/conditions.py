"""What a drive finds besides its route: how many cars and people, and which weather.

Pure: a configuration and a generator in, numbers and names out. A range of one value takes nothing from the generator,
so that a task without ranges draws what it drew before there were any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carla_td3.config import Amount, EnvironmentConfig


@dataclass(frozen=True)
class Conditions:
    """Of one drive."""

    vehicles: int
    walkers: int
    weather: str | None
    """A preset of CARLA's; None leaves what there is."""
    seed: int | None = None
    """Everybody is replaced and seeded with it; None: who is there goes on."""
    restless: bool = False
    """Whether the route's lights change at any moment."""


def drawn(config: EnvironmentConfig, rng: np.random.Generator, seed: int | None = None) -> Conditions:
    """Return the next drive's conditions, from the configured ranges."""
    vehicles = _drawn(config.traffic.vehicles, rng)
    walkers = _drawn(config.traffic.walkers, rng)
    names = config.weather
    weather = names[_drawn((0, len(names) - 1), rng)] if names else None
    share = config.traffic.lights_restless
    # Not in a drive that others drive as well: what it is like is no matter of training.
    restless = seed is None and share > 0.0 and bool(rng.random() < share)
    return Conditions(vehicles, walkers, weather, seed, restless)


def paired(config: EnvironmentConfig, seed: int) -> Conditions:
    """Return the conditions that belong to a seed, the same for whoever drives."""
    return drawn(config, np.random.default_rng(seed), seed)


def _drawn(amount: Amount, rng: np.random.Generator) -> int:
    low, high = (amount, amount) if isinstance(amount, int) else amount
    return low if low == high else int(rng.integers(low, high + 1))
