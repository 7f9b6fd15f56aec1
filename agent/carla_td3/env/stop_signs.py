"""Stop signs, as the Leaderboard's RunningStopTest judges them: who crosses one's box without standing in it ran it.

Owns where the map's signs hold cars, and which of them still asks one to stand. What it costs is no business of its.
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
class Hold:
    """The box on the road in which a stop sign asks cars to stand: metres and radians in the world's frame."""

    x_m: float
    y_m: float
    yaw: float
    half_x_m: float
    half_y_m: float
    travel: float
    """The direction of the cars that it is for."""

    def holds(self, motion: Motion) -> bool:
        """Return whether a car is in it that goes its way."""
        dx, dy = motion.x_m - self.x_m, motion.y_m - self.y_m
        if abs(dx) > (reach_m := self.half_x_m + self.half_y_m) or abs(dy) > reach_m:
            return False
        forward, right = turned(dx, dy, self.yaw)
        return (
            abs(forward) <= self.half_x_m and abs(right) <= self.half_y_m and math.cos(motion.yaw - self.travel) > 0.0
        )


class StopWatch:
    """Follows one drive over a map's stop signs."""

    def __init__(self, holds: list[Hold]) -> None:
        self._holds = holds
        self._inside: Hold | None = None
        self._stood = False

    @property
    def asking(self) -> tuple[Hold, ...]:
        """All but the one in which the car has just stood."""
        return tuple(hold for hold in self._holds if not (self._stood and hold is self._inside))

    def look(self, motion: Motion) -> bool:
        """Return whether the car has just left a stop sign's box in which it didn't stand."""
        left = self._inside is not None and not self._inside.holds(motion)
        ran = left and not self._stood
        if left:
            self._inside = None
        if self._inside is None:
            self._inside, self._stood = next((hold for hold in self._holds if hold.holds(motion)), None), False
        if self._inside is not None:
            self._stood = self._stood or motion.speed_mps < STANDING_MPS
        return ran


def stop_signs(session: Session) -> list[Hold]:
    """Return what the map's stop signs hold.

    Raises:
        SimulatorLost: the simulator doesn't answer.
    """
    with session.answered():
        return [_hold(sign) for sign in session.world.get_actors().filter(KIND)]


def _hold(sign: Any) -> Hold:
    pose, box = sign.get_transform(), sign.trigger_volume
    middle, yaw = pose.transform(box.location), math.radians(pose.rotation.yaw + box.rotation.yaw)
    # A sign's x points across its road: a quarter turn from the way of the cars that read it (protocol, section 3.4).
    return Hold(middle.x, middle.y, yaw, box.extent.x, box.extent.y, yaw - math.pi / 2.0)
