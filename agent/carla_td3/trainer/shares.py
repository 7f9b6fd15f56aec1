"""What is whose among several collectors: settings, seeds, rows, and the steps that the plan allows. Pure.

With one collector everything is its own, as the run's configuration has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carla_td3.config import AgentConfig, dump
from carla_td3.seeding import Purpose, derived_seed


def settings_of(config: AgentConfig, collector: int, town: str | None, own_steps: int, steps: int) -> dict[str, Any]:
    """Return the configuration that a collector runs with, as plain data; of a run's only one it is the run's own.

    Further collectors draw by seeds of their own. Which routes are held out, no seed changes.

    Args:
        config: of the run.
        collector: its number.
        town: ``simulator.map`` for it.
        own_steps: in its ring; its random driving ends after its part of what is left of the warm-up.
        steps: in all rings.
    """
    values, count, training = dump(config), config.training.collectors, config.training
    values["simulator"]["map"] = town
    host, port = config.simulator.address(collector)
    values["simulator"] |= {"host": host, "port": port, "others": []}
    values["cluster"] = {"address": None, "simulator": []}  # where it drives, that is here
    values["seed"] = derived_seed(config.seed, Purpose.COLLECTOR, collector) if collector else config.seed
    values["replay"]["capacity"] = ring_capacity(config)
    left = max(0, training.warmup_steps - steps)
    warmup = min(training.warmup_steps, own_steps + -(-left // count))
    values["training"] |= {"collectors": 1, "warmup_steps": warmup}
    return values


def ring_capacity(config: AgentConfig) -> int:
    """Return the rows of one collector's ring."""
    return config.replay.capacity // config.training.collectors


@dataclass(frozen=True)
class Standing:
    """Where one collector stands."""

    steps: int
    """In its ring."""
    limit: int
    """Up to which it may have them."""
    drives: bool
    """Whether it has its simulator."""


def step_limits(allowed: int, collectors: Sequence[Standing], most: int) -> list[int]:
    """Return how many steps each collector may have, which together are as many as allowed.

    Who has the fewest left gets the first. What one has left isn't taken back, for it may be using it this moment, and
    all together would come too far; but it is of one that has no simulator, which would hold up the rest. (Such a one
    may so finish a step that was begun for it before: one too many, at the very most, for each of them.)

    Args:
        allowed: steps in these collectors' rings.
        collectors: where they stand.
        most: steps that one has left, at most, where there are several.
    """
    if len(collectors) == 1:
        return [allowed]
    drives = [each.drives for each in collectors]
    if not any(drives):
        drives = [True] * len(collectors)
    left = [max(0, each.limit - each.steps) if able else 0 for each, able in zip(collectors, drives, strict=True)]
    free = allowed - sum(each.steps for each in collectors) - sum(left)
    while free > 0 and (open_to := [at for at, able in enumerate(drives) if able and left[at] < most]):
        fewest = min(open_to, key=left.__getitem__)
        left[fewest] += 1
        free -= 1
    return [each.steps + steps for each, steps in zip(collectors, left, strict=True)]
