"""Lidars: one returns points with an intensity, the other points with the label and actor that they hit.

Owns the rotation, the order of points, drop-off and noise, as in CARLA's RayCastSemanticLidar.cpp and RayCastLidar.cpp.
Casts no ray itself.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from carla_lite.actors.actor import Identity, enter
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.rays.field import FARTHEST_M, NOTHING, Field, Hits
from carla_lite.rays.solids import Integers, products, turned
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import Pose

_MOST_CHANNELS, _MOST_POINTS, _LEAST_FOV_DEG, _FASTEST = 1024.0, 1e7, 1e-3, 1e6
_HEAD = struct.Struct("<fI")


class _Echoes(NamedTuple):
    """The rays of one step that hit something."""

    field: Field
    hits: Hits
    ways: FloatArray  # (3, n) directions in the sensor's frame
    outside: FloatArray  # (3, n) directions in the world's frame
    eye: FloatArray  # (3, 1)


class SemanticLidar(Sensor):
    """A lidar whose points have an angle of incidence, an actor and a label."""

    kind: ClassVar[int] = 10

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._channels = int(self.number("channels", 1.0, _MOST_CHANNELS))
        self._points_per_s = int(self.number("points_per_second", 0.0, _MOST_POINTS))
        self._range_m = self.number("range", 0.0, FARTHEST_M)
        self._fov_deg = self.number("horizontal_fov", _LEAST_FOV_DEG, 360.0)
        self._turns_per_s = self.number("rotation_frequency", 0.0, _FASTEST)
        upper, lower = self.number("upper_fov", -360.0, 360.0), self.number("lower_fov", -360.0, 360.0)
        self._pitches = np.radians(np.linspace(upper, lower, self._channels))
        self._angle_deg = 0.0
        """Angle in the field of view at which the next sweep begins."""

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the points of one step's part of a turn, laser by laser from the top, each in the order of its rays.

        As in CARLA, that is one step of the world even if ``sensor_tick`` skips some.
        """
        each = math.floor(self._points_per_s * snapshot.delta_s / self._channels + 0.5)
        ways = self._sweep(each, snapshot.delta_s)
        cast = self._cast(ways.shape[1])
        where = self.pose
        ways, eye = ways[:, cast], (where.x, where.y, where.z)
        outside = turned(ways, where.axes())
        hits = snapshot.rays.cast(eye, outside, self._range_m)
        met = np.flatnonzero(hits.things != NOTHING)
        hits = Hits(hits.distances[met], hits.normals[:, met], hits.things[met])
        echoes = _Echoes(snapshot.rays, hits, ways[:, met], outside[:, met], np.array(eye)[:, None])
        returned, points = self._points(echoes)
        lasers = cast[met[returned]] // max(each, 1)
        counts = np.bincount(lasers, minlength=self._channels).astype("<u4")
        head = _HEAD.pack(math.radians(self._angle_deg), self._channels)
        yield self.header(snapshot, where), head, counts.tobytes(), points

    def _sweep(self, each: int, delta_s: float) -> FloatArray:
        """Return the directions of all rays of one step (3, n) in the sensor's frame, and rotate on."""
        tick_deg = self._turns_per_s * self._fov_deg * delta_s
        angles = np.fmod(self._angle_deg + tick_deg / max(each, 1) * np.arange(each), self._fov_deg)
        yaws = np.radians(angles - 0.5 * self._fov_deg)
        if each > 0:
            self._angle_deg = math.fmod(self._angle_deg + tick_deg, self._fov_deg)
        level = np.cos(self._pitches)[:, None]
        up = np.repeat(np.sin(self._pitches), each)
        return np.stack([(level * np.cos(yaws)).ravel(), (level * np.sin(yaws)).ravel(), up])

    def _cast(self, rays: int) -> Integers:
        """Return the numbers of the rays that are cast: all."""
        return np.arange(rays)

    def _points(self, echoes: _Echoes) -> tuple[Integers, bytes]:
        """Return which rays give a point, and the points in wire format."""
        field, hits, ways, outside, eye = echoes
        points = np.empty((len(hits.things), 6), np.float32)
        points[:, :3] = (hits.distances * ways).T
        points[:, 3] = -products(hits.normals, outside)
        whole = points.view(np.uint32)
        whole[:, 4] = field.ids(hits.things)
        whole[:, 5] = field.tags(hits.things, eye + hits.distances * outside)
        return np.arange(len(points)), points.tobytes()


class Lidar(SemanticLidar):
    """A lidar whose points have an intensity; some points are lost, and all have noise along their rays."""

    kind: ClassVar[int] = 11

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._attenuation = self.number("atmosphere_attenuation_rate", -math.inf)
        self._lost = self.number("dropoff_general_rate", -math.inf)
        self._limit = self.number("dropoff_intensity_limit", -math.inf)
        self._lost_at_zero = self.number("dropoff_zero_intensity", -math.inf)
        self._noise_m = self.number("noise_stddev", 0.0)
        self._random = self.generator()

    def _cast(self, rays: int) -> Integers:
        """Return the numbers of the rays that are cast: a share of ``dropoff_general_rate`` is lost."""
        if self._lost <= 0.0:
            return np.arange(rays)
        return np.flatnonzero(self._random.random(rays) >= self._lost)

    def _points(self, echoes: _Echoes) -> tuple[Integers, bytes]:
        distances, ways = echoes.hits.distances, echoes.ways
        intensities = np.exp(-self._attenuation * distances)
        if self._noise_m > 0.0:
            distances = distances + self._random.normal(0.0, self._noise_m, len(distances))
        # Falls linearly from the intensity limit to the loss at zero intensity.
        slope = self._lost_at_zero / self._limit if self._limit else math.inf
        chance = slope * intensities + 1.0 - self._lost_at_zero
        returned = np.flatnonzero((intensities > self._limit) | (self._random.random(len(distances)) < chance))
        points = np.empty((len(returned), 4), np.float32)
        points[:, :3] = (distances[returned] * ways[:, returned]).T
        points[:, 3] = intensities[returned]
        return returned, points.tobytes()


enter(SemanticLidar, "sensor.lidar.ray_cast_semantic")
enter(Lidar, "sensor.lidar.ray_cast")
