"""What a step is worth: named terms, whose sum is the reward. Two forms, chosen by ``reward.form``.

Pure: a ``Step`` in, terms out. Only progress along the route pays (by arc length, so that no shortcut and no circle
does), and the route's end. In the **sum** everything else costs by itself. In the **product**, after CaRL (2504.17838),
faults take away from what progress pays, so that driving badly is never worth more than standing; what must not happen
ends the drive. There the speed is held against what the road ahead allows, which falls to 0 before a hazard as in Roach
(2108.08265). Waiting where that is right costs nothing in either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carla_td3.config import RewardConfig

IDLE_BELOW_MPS = 1.0
TTC_S = 2.0
"""A collision further off than this is none to come."""


@dataclass(frozen=True)
class Step:
    """What happened in one step of ``seconds``."""

    seconds: float
    progress_m: float
    """Change of the projected arc length; negative when driving back."""
    gained_m: float
    """By how much that arc length has become larger than ever; ≥ 0."""
    speed_mps: float
    lateral: float
    """Distance from the line in half lanes, any sign."""
    heading_error: float
    """Radians, any sign."""
    action_change: float
    """Sum of the absolute changes of steering and pedal, 0 to 4."""
    collision: bool
    off_road: bool
    finished: bool
    allowed_mps: float = math.inf
    """What cars, lights and people ahead allow."""
    ttc_s: float = math.inf
    """Time to collision."""
    red_light: bool = False
    blocked: bool = False


def terms(step: Step, config: RewardConfig) -> dict[str, float]:
    """Return the weighted terms, by the names of ``RewardConfig``."""
    return (_sum if config.form == "sum" else _product)(step, config)


def _sum(step: Step, config: RewardConfig) -> dict[str, float]:
    """``progress`` lies in [-weight, weight]; ``finish`` is ≥ 0; all others are ≤ 0."""
    target = config.target_speed_mps
    advance = step.progress_m / (target * step.seconds)
    # To wait is right where at most half of the target speed is allowed: at a light, in a queue, also a few metres off.
    free = max(0.0, 2.0 * min(step.allowed_mps, target) / target - 1.0)
    return {
        "progress": config.progress * max(-1.0, min(1.0, advance)),
        "idle": -config.idle * max(0.0, 1.0 - step.speed_mps / IDLE_BELOW_MPS) * free,
        "overspeed": -config.overspeed * max(0.0, step.speed_mps / target - 1.0),
        **_faults(step, config),
        "collision": -config.collision * step.collision,
        "off_road": -config.off_road * step.off_road,
        "finish": config.finish * step.finished,
    }


def _product(step: Step, config: RewardConfig) -> dict[str, float]:
    """``progress`` lies in [0, weight]; ``finish`` is ≥ 0; all others are ≤ 0, and end the drive."""
    target = config.target_speed_mps
    faults = {
        **_faults(step, config),
        "overspeed": -config.overspeed * max(0.0, step.speed_mps - min(step.allowed_mps, target)) / target,
        "time_to_collision": -config.time_to_collision * max(0.0, 1.0 - step.ttc_s / TTC_S),
    }
    left = math.prod(max(0.0, 1.0 + fault) for fault in faults.values())
    return {
        "progress": config.progress * min(1.0, step.gained_m / (target * step.seconds)) * left,
        "collision": -config.collision * step.collision,
        "red_light": -config.red_light * step.red_light,
        "off_road": -config.off_road * step.off_road,
        "blocked": -config.blocked * step.blocked,
        "finish": config.finish * step.finished,
    }


def _faults(step: Step, config: RewardConfig) -> dict[str, float]:
    """Return how badly the car is held on its line, each ≤ 0."""
    pace = min(step.speed_mps / config.target_speed_mps, 1.0)
    return {
        "lateral": -config.lateral * abs(step.lateral) * pace,
        "heading": -config.heading * abs(step.heading_error) / (math.pi / 2.0) * pace,
        "comfort": -config.comfort * step.action_change / 2.0,
    }
