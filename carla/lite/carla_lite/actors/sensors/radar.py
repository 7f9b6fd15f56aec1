"""The radar.

Owns the directions of its rays and the content of a detection, as in CARLA's Radar.cpp. Casts no ray itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from carla_lite.actors.actor import Identity, register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.actors.surroundings import Surroundings
from carla_lite.protocol.wire import Vector
from carla_lite.rays.field import FARTHEST_M, NOTHING
from carla_lite.rays.solids import products, turned
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import Pose

_MOST_POINTS, _WIDEST_DEG = 1e7, 179.0


class Radar(Sensor):
    """Casts rays in random directions of a cone. Each hit gives the speed away from the radar, and the place."""

    kind: ClassVar[int] = 9

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._points_per_s = int(self.number("points_per_second", 0.0, _MOST_POINTS))
        self._range_m = self.number("range", 0.0, FARTHEST_M)
        fovs = self.number("horizontal_fov", 0.0, _WIDEST_DEG), self.number("vertical_fov", 0.0, _WIDEST_DEG)
        self._across, self._up = (math.tan(math.radians(0.5 * fov)) for fov in fovs)
        self._random = self.generator()
        self._before = 0.0, 0.0, 0.0
        """Its place at the last reading, or when it was spawned."""

    def entered(self, world: Surroundings) -> None:
        """Open its stream; its velocity is measured from here."""
        super().entered(world)
        at = self.pose
        self._before = at.x, at.y, at.z

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the detections of this step: speed (m/s, positive if the distance grows), azimuth to the right,
        altitude (rad) and depth (m).

        The radar's own velocity is its movement since the last reading divided by one step of the world, as in CARLA:
        if ``sensor_tick`` skips steps, it is too large.
        """
        where = self.pose
        velocity = self._velocity((where.x, where.y, where.z), snapshot.delta_s)
        # In single precision, as in CARLA: 1500 points per second are 75 in 0.05 s.
        count = int(np.float32(self._points_per_s) * np.float32(snapshot.delta_s))
        radii, turns = self._random.random(count), self._random.random(count) * math.tau
        ways = np.ones((3, count))
        ways[1], ways[2] = self._across * radii * np.cos(turns), self._up * radii * np.sin(turns)
        lengths = np.sqrt(products(ways, ways))
        ways /= lengths
        outside = turned(ways, where.axes())
        # Its range is a plane ahead, so rays to the side reach further.
        reach_m = self._range_m * math.sqrt(1.0 + max(self._across, self._up) ** 2)
        hits = snapshot.rays.cast((where.x, where.y, where.z), outside, reach_m)
        met = np.flatnonzero((hits.things != NOTHING) & (hits.distances <= self._range_m * lengths))
        velocities = snapshot.velocities_of(hits.things[met])
        points = np.empty((len(met), 4), np.float32)
        points[:, 0] = products(velocities - velocity, outside[:, met])
        points[:, 1] = np.arctan2(ways[1, met], ways[0, met])
        points[:, 2] = np.arcsin(ways[2, met])
        points[:, 3] = hits.distances[met]
        yield self.header(snapshot, where), points.tobytes()

    def _velocity(self, place: Vector, delta_s: float) -> FloatArray:
        before, self._before = self._before, place
        return np.array([[(now - then) / delta_s] for now, then in zip(place, before, strict=True)])


register(Radar, "sensor.other.radar")
