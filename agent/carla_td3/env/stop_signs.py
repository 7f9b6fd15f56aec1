"""Stop signs, as in the Leaderboard's RunningStopTest: a car that crosses a sign's box without standing in it ran it.

Owns where the map's signs hold cars, and which of them the car still has to stop at. Knows no penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from carla_td3.env.car import Motion
from carla_td3.env.route_line import turned
from carla_td3.env.session import Session

KIND = "traffic.stop"
STANDING_MPS = 0.1


@dataclass(frozen=True)
class StopBox:
    """The box on the road in which a stop sign asks cars to stand: metres and radians in the world's frame."""

    x_m: float
    y_m: float
    yaw: float
    half_x_m: float
    half_y_m: float
    travel: float
    """Direction of travel of the cars that it applies to."""

    def holds(self, motion: Motion) -> bool:
        """Return whether a car is in it and drives in its direction."""
        dx, dy = motion.x_m - self.x_m, motion.y_m - self.y_m
        if abs(dx) > (reach_m := self.half_x_m + self.half_y_m) or abs(dy) > reach_m:
            return False
        forward, right = turned(dx, dy, self.yaw)
        return (
            abs(forward) <= self.half_x_m and abs(right) <= self.half_y_m and math.cos(motion.yaw - self.travel) > 0.0
        )


class StopSignWatch:
    """Records the stops of one drive at the map's stop signs."""

    def __init__(self, holds: list[StopBox]) -> None:
        self._holds = holds
        self._inside: StopBox | None = None
        self._stood = False

    @property
    def active(self) -> tuple[StopBox, ...]:
        """All but the one at which the car has just stopped."""
        return tuple(hold for hold in self._holds if not (self._stood and hold is self._inside))

    def look(self, motion: Motion) -> bool:
        """Return whether the car has just left a stop sign's box without stopping in it."""
        left = self._inside is not None and not self._inside.holds(motion)
        ran = left and not self._stood
        if left:
            self._inside = None
        if self._inside is None:
            self._inside, self._stood = next((hold for hold in self._holds if hold.holds(motion)), None), False
        if self._inside is not None:
            self._stood = self._stood or motion.speed_mps < STANDING_MPS
        return ran


def stop_signs(session: Session) -> list[StopBox]:
    """Return the boxes of the map's stop signs.

    Raises:
        SimulatorLost: the simulator doesn't answer.
    """
    with session.answered():
        return [_hold(sign) for sign in session.world.get_actors().filter(KIND)]


def _hold(sign: Any) -> StopBox:
    pose, box = sign.get_transform(), sign.trigger_volume
    middle, yaw = pose.transform(box.location), math.radians(pose.rotation.yaw + box.rotation.yaw)
    # A sign's x axis points across its road: a quarter turn from the direction of the cars that it faces (protocol,
    # 3.4).
    return StopBox(middle.x, middle.y, yaw, box.extent.x, box.extent.y, yaw - math.pi / 2.0)
