"""The obstacle detector.

Owns what counts as an obstacle and the content of its events, as in CARLA's ObstacleDetectionSensor.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgpack
import numpy as np

from carla_lite.actors.actor import Identity, Vehicle, register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.actors.sensors.collision import stand_in
from carla_lite.actors.walkers import Walker
from carla_lite.rays.field import FARTHEST_M
from carla_lite.scenery.camera import Pose


class ObstacleDetector(Sensor):
    """In each tick, moves a ball forward and reports the first thing that it touches. Ignores the sensor's parent.

    The ball starts at the sensor. If its radius exceeds the sensor's height, it touches the ground at once.
    ``debug_linetrace`` draws nothing here.
    """

    kind: ClassVar[int] = 7

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._reach_m = self.number("distance", 0.0, FARTHEST_M)
        self._radius_m = self.number("hit_radius", 0.0, FARTHEST_M)
        self._only_dynamics = self.attributes["only_dynamics"].lower() in ("true", "1")

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield an event if there is an obstacle: the two actors, and the distance that the ball moved (m)."""
        at, rays = self.pose, snapshot.rays
        movers = [
            number
            for number, actor in enumerate(snapshot.moving)
            if actor is not self.parent and (isinstance(actor, Vehicle | Walker) or not self._only_dynamics)
        ]
        found = rays.sweep((at.x, at.y, at.z), at.axes()[0], self._radius_m, self._reach_m, movers, self._only_dynamics)
        if found is not None:
            distance_m, thing = found
            payload: bytes = msgpack.packb([self.describe(), self._other(snapshot, at, distance_m, thing), distance_m])
            yield self.header(snapshot, at), payload

    def _other(self, snapshot: TickSnapshot, at: Pose, distance_m: float, thing: int) -> list[object]:
        """Return the touched actor. For a thing that isn't an actor, return the stand-in of the collision sensor."""
        rays = snapshot.rays
        number, sign = int(rays.numbers(np.array(thing))), rays.sign(thing)
        if number >= 0:
            return snapshot.moving[number].describe()
        if sign >= 0:
            return snapshot.signage.shown[sign].describe()
        x, y, _ = at.axes()[0]
        return stand_in(rays.tag(thing, at.x + distance_m * x, at.y + distance_m * y))


register(ObstacleDetector, "sensor.other.obstacle")
