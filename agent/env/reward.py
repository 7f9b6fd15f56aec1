"""What a step is worth: few terms, each with a weight ≥ 0, each reported by itself.

Pure: a ``Step`` in, named terms out. Only progress along the route pays (by arc length, so that no shortcut and no
circle does), and the route's end; everything else costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.config import RewardConfig

IDLE_BELOW_MPS = 1.0


@dataclass(frozen=True)
class Step:
    """What happened in one step of ``seconds``."""

    seconds: float
    progress_m: float
    """Change of the projected arc length; negative when driving back."""
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


def terms(step: Step, config: RewardConfig) -> dict[str, float]:
    """Return the weighted terms by the names of ``RewardConfig``; their sum is the reward.

    ``progress`` lies in [-weight, weight]; ``finish`` is ≥ 0; all others are ≤ 0.
    """
    target = config.target_speed_mps
    pace = min(step.speed_mps / target, 1.0)
    advance = step.progress_m / (target * step.seconds)
    return {
        "progress": config.progress * max(-1.0, min(1.0, advance)),
        "idle": -config.idle * max(0.0, 1.0 - step.speed_mps / IDLE_BELOW_MPS),
        "overspeed": -config.overspeed * max(0.0, step.speed_mps / target - 1.0),
        "lateral": -config.lateral * abs(step.lateral) * pace,
        "heading": -config.heading * abs(step.heading_error) / (math.pi / 2.0) * pace,
        "comfort": -config.comfort * step.action_change / 2.0,
        "collision": -config.collision * step.collision,
        "off_road": -config.off_road * step.off_road,
        "finish": config.finish * step.finished,
    }
