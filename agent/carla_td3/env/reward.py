"""The reward: a sum of named terms, in one of two forms (``reward.form``).

Pure: a ``RewardStep`` in, terms out. Only progress along the route (by arc length, so that neither shortcuts nor
circles pay) and the route's end are rewarded. In the **sum**, each fault has its own cost. In the **product**, after
CaRL (2504.17838), faults reduce the reward of progress, so that bad driving is never worth more than standing, and
serious faults end the drive. It compares the speed with the one that the road ahead allows, which falls to 0 before a
hazard as in Roach (2108.08265). Waiting for a good reason costs nothing in either form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carla_td3.config import RewardConfig

IDLE_BELOW_MPS = 1.0
TTC_S = 2.0
"""A later collision isn't counted as imminent."""


@dataclass(frozen=True)
class RewardStep:
    """Events of one step of ``seconds``."""

    seconds: float
    progress_m: float
    """Change of the projected arc length; negative when driving back."""
    gained_m: float
    """By how much the arc length exceeds its earlier maximum; ≥ 0."""
    speed_mps: float
    lateral: float
    """Distance from the line in half lanes; either sign."""
    heading_error: float
    """Radians; either sign."""
    action_change: float
    """Sum of the absolute changes of steering and pedal, 0 to 4."""
    collision: bool
    off_road: bool
    finished: bool
    allowed_mps: float = math.inf
    """Speed that cars, lights and pedestrians ahead allow."""
    ttc_s: float = math.inf
    """Time to collision."""
    red_light: bool = False
    blocked: bool = False


def terms(step: RewardStep, config: RewardConfig) -> dict[str, float]:
    """Return the weighted terms, by the names in ``RewardConfig``."""
    return (_sum if config.form == "sum" else _product)(step, config)


def _sum(step: RewardStep, config: RewardConfig) -> dict[str, float]:
    """``progress`` lies in [-weight, weight]; ``finish`` is ≥ 0; all others are ≤ 0."""
    target = config.target_speed_mps
    advance = step.progress_m / (target * step.seconds)
    # Waiting is right where at most half of the target speed is allowed: at a light, in a queue, also a few metres off.
    free = max(0.0, 2.0 * min(step.allowed_mps, target) / target - 1.0)
    return {
        "progress": config.progress * max(-1.0, min(1.0, advance)),
        "idle": -config.idle * max(0.0, 1.0 - step.speed_mps / IDLE_BELOW_MPS) * free,
        "overspeed": -config.overspeed * max(0.0, step.speed_mps / target - 1.0),
        **_faults(step, config),
        "collision": -config.collision * step.collision,
        "red_light": -config.red_light * step.red_light,
        "off_road": -config.off_road * step.off_road,
        "finish": config.finish * step.finished,
    }


def _product(step: RewardStep, config: RewardConfig) -> dict[str, float]:
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


def _faults(step: RewardStep, config: RewardConfig) -> dict[str, float]:
    """Return the faults in holding the line, each ≤ 0."""
    pace = min(step.speed_mps / config.target_speed_mps, 1.0)
    return {
        "lateral": -config.lateral * abs(step.lateral) * pace,
        "heading": -config.heading * abs(step.heading_error) / (math.pi / 2.0) * pace,
        "comfort": -config.comfort * step.action_change / 2.0,
    }
