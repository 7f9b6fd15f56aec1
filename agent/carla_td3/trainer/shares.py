"""Division of a run among several collectors: settings, seeds, rows, and the allowed steps. Pure.

A single collector gets everything, as configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carla_td3.config import AgentConfig, dump
from carla_td3.seeding import Purpose, derived_seed


def settings_of(config: AgentConfig, collector: int, town: str | None, own_steps: int, steps: int) -> dict[str, Any]:
    """Return a collector's configuration as plain data; a single collector has the run's.

    Further collectors have other seeds. The held-out routes don't depend on them.

    Args:
        config: of the run.
        collector: its number.
        town: ``simulator.map`` for it.
        own_steps: steps in its ring; its random driving ends after its part of the remaining warm-up.
        steps: steps in all rings.
    """
    values, count, training = dump(config), config.training.collectors, config.training
    values["simulator"]["map"] = town
    host, port = config.simulator.address(collector)
    values["simulator"] |= {"host": host, "port": port, "others": []}
    values["cluster"] = {"address": None, "simulator": []}  # where it drives, that is local
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
class CollectorProgress:
    """State of one collector."""

    steps: int
    """Steps in its ring."""
    limit: int
    """Its present step limit."""
    drives: bool
    """Whether it has its simulator."""


def step_limits(allowed: int, collectors: Sequence[CollectorProgress], most: int) -> list[int]:
    """Return each collector's step limit; together they allow as many steps as the run may take.

    The collector with the fewest steps left gets the first. Steps left to a collector aren't taken back, because it may
    be using them now, and the sum would become too large. The exception is a collector without a simulator, which would
    hold up the others. (It may still finish a step that it had begun: at most one step too many per such collector.)

    Args:
        allowed: steps in these collectors' rings.
        collectors: their states.
        most: largest number of steps left to one of several collectors.
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
