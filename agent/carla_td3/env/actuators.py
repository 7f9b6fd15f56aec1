"""The car's steering wheel and pedals, which follow an action with a delay.

Pure. A replay stores the action, not the applied control: the delay belongs to the environment, and the positions of
wheel and pedals belong to the state (``observation``).
"""

from __future__ import annotations

import math

from carla_td3.config import ActionRateConfig


class Actuators:
    """Steering and pedal of one car.

    Args:
        config: their limits; none by default.
        seconds: simulated duration of a step.
    """

    def __init__(self, config: ActionRateConfig, seconds: float) -> None:
        self._most = [None if rate is None else rate * seconds for rate in (config.steer_per_s, config.pedal_per_s)]
        self._left = math.exp(-seconds / config.lag_s) if config.lag_s > 0.0 else 0.0
        self._range = config.steer_range
        self.applied = (0.0, 0.0)
        """Present steering and pedal as actions, -1 to 1. A new drive begins straight ahead, with both pedals released.
        """

    def follow(self, steer: float, pedal: float) -> tuple[float, float]:
        """Return the control of this step: steering as a share of the largest wheel angle, and the pedal."""
        (before_steer, before_pedal), (most_steer, most_pedal) = self.applied, self._most
        self.applied = self._toward(before_steer, steer, most_steer), self._toward(before_pedal, pedal, most_pedal)
        return self.applied[0] * self._range, self.applied[1]

    def _toward(self, before: float, asked: float, most: float | None) -> float:
        nearer = asked + self._left * (before - asked)
        return nearer if most is None else min(before + most, max(before - most, nearer))
