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
from numpy.typing import NDArray

from carla_lite.actors.actor import Identity, register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.rays.field import FARTHEST_M, NOTHING, Field, Hits
from carla_lite.rays.solids import Integers, products, turned
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import Pose

_MOST_CHANNELS, _MOST_POINTS, _LEAST_FOV_DEG, _FASTEST = 1024.0, 1e7, 1e-3, 1e6
_HEAD = struct.Struct("<fI")


class _Echoes(NamedTuple):
    """The rays of one step, and which of them met something."""

    field: Field
    hits: Hits
    met: Integers
    ways: FloatArray  # (3, n) directions in the sensor's frame
    outside: FloatArray  # (3, n) and in the world's
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
        ways, eye = ways.take(cast, 1), (where.x, where.y, where.z)
        outside = turned(ways, where.axes())
        hits = snapshot.rays.cast(eye, outside, self._range_m)
        met = np.flatnonzero(hits.things != NOTHING)
        returned, points = self._points(_Echoes(snapshot.rays, hits, met, ways, outside, np.array(eye)[:, None]))
        lasers = cast.take(returned) // max(each, 1)
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
        """Return which of the rays are returned, and their points as they are on the wire."""
        field, hits, met, ways, outside, eye = echoes
        distances, things, outside = hits.distances.take(met), hits.things.take(met), outside.take(met, 1)
        points = _placed(distances, ways, met, 6)
        points[:, 3] = -products(hits.normals.take(met, 1), outside)
        whole = points.view(np.uint32)
        whole[:, 4] = field.ids(things)
        whole[:, 5] = field.tags(things, eye + distances * outside)
        return met, points.tobytes()


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
        distances = echoes.hits.distances.take(echoes.met)
        intensities = np.exp(-self._attenuation * distances)
        if self._noise_m > 0.0:
            distances = distances + self._random.normal(0.0, self._noise_m, len(distances))
        # Falls linearly from the intensity limit to the loss at zero intensity.
        slope = self._lost_at_zero / self._limit if self._limit else math.inf
        chance = slope * intensities + 1.0 - self._lost_at_zero
        returned = np.flatnonzero((intensities > self._limit) | (self._random.random(len(distances)) < chance))
        rays = echoes.met.take(returned)
        points = _placed(distances.take(returned), echoes.ways, rays, 4)
        points[:, 3] = intensities.take(returned)
        return rays, points.tobytes()


def _placed(distances: FloatArray, ways: FloatArray, rays: Integers, fields: int) -> NDArray[np.float32]:
    """Return an array of so many fields a point, of which the first three are filled: x, y and z."""
    points = np.empty((len(rays), fields), np.float32)
    for axis, way in enumerate(ways):  # numpy is slow where it goes along three numbers at a time
        points[:, axis] = distances * way.take(rays)
    return points


register(SemanticLidar, "sensor.lidar.ray_cast_semantic")
register(Lidar, "sensor.lidar.ray_cast")
