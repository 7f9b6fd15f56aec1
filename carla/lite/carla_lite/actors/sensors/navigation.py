"""GNSS receiver and inertial measurement unit, with CARLA's noise attributes.

Owns their measurements and noise: one random number generator per sensor, seeded by ``noise_seed``, so that the same
drive gives the same readings. Changes nothing that it reads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import msgpack

from carla_lite.actors.actor import Identity, Vehicle, register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.camera import Pose
from carla_lite.support import Support, approximated


class _NoisySensor(Sensor):
    """A sensor whose readings have a bias and normally distributed noise."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._random = random.Random(int(self.number("noise_seed", -math.inf)))

    def noisy(self, value: float, name: str) -> float:
        """Return a reading with ``noise_NAME_bias`` and noise of ``noise_NAME_stddev``, if the sensor has them."""
        kind, _, axis = name.partition("_")
        bias, stddev = ("_".join(filter(None, ("noise", kind, part, axis))) for part in ("bias", "stddev"))
        return value + self.number(bias, -math.inf) + self._random.gauss(0.0, self.number(stddev, 0.0))


class Gnss(_NoisySensor):
    """Latitude and longitude in degrees and altitude in metres of the sensor."""

    kind: ClassVar[int] = 4

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the reading of this snapshot."""
        where = self.pose
        latitude, longitude = snapshot.geo_reference.transform(where.x, where.y)
        reading = [self.noisy(latitude, "lat"), self.noisy(longitude, "lon"), self.noisy(where.z, "alt")]
        yield self.header(snapshot, where), msgpack.packb(reading)


class Imu(_NoisySensor):
    """Acceleration with gravity's reaction (m/s²), angular velocity (rad/s), both in the sensor's frame, and compass.

    The acceleration is the second difference of the sensor's last three places, as in CARLA
    (InertialMeasurementUnit.cpp), so that it is right for a sensor off the centre, too.
    """

    kind: ClassVar[int] = 5
    support: ClassVar[Support] = approximated("the gyroscope feels yaw only")

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._past: list[tuple[float, Vector]] = []
        """Time and place of the last two readings."""

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the reading of this snapshot."""
        where = self.pose
        x, y, z = self._acceleration(snapshot.elapsed_s, (where.x, where.y, where.z))
        felt = _unrotated((x, y, z + snapshot.gravity_mps2), where)
        accel = [self.noisy(value, f"accel_{axis}") for value, axis in zip(felt, "xyz", strict=True)]
        gyro = [self.noisy(value, f"gyro_{axis}") for value, axis in zip(self._turning(), "xyz", strict=True)]
        # Clockwise from north, which is -y in CARLA's frame.
        compass = (where.yaw + 0.5 * math.pi) % math.tau
        yield self.header(snapshot, where), msgpack.packb([accel, gyro, compass])

    def _acceleration(self, now_s: float, place: Vector) -> Vector:
        samples = [*self._past, (now_s, place)]
        self._past = samples[-2:]
        if len(samples) < 3:
            return 0.0, 0.0, 0.0
        # Whole nanoseconds, so that no digit depends on how long the server has run.
        before_s, since_s = (round(tb - ta, 9) for (ta, _), (tb, _) in pairwise(samples))
        (old_x, old_y, old_z), (x, y, z) = (
            ((b[0] - a[0]) / step_s, (b[1] - a[1]) / step_s, (b[2] - a[2]) / step_s)
            for step_s, ((_, a), (_, b)) in zip((before_s, since_s), pairwise(samples), strict=True)
        )
        half_s = 0.5 * (before_s + since_s)
        return (x - old_x) / half_s, (y - old_y) / half_s, (z - old_z) / half_s

    def _turning(self) -> Vector:
        parent = self.parent
        if not isinstance(parent, Vehicle):
            return 0.0, 0.0, 0.0
        # CARLA applies the sensor's rotation to the parent's rates, not its inverse: the same for the usual mounts.
        return _rotated(_unrotated((0.0, 0.0, parent.body.yaw_rate), parent.pose), self.place)


def _unrotated(vector: Vector, pose: Pose) -> Vector:
    """Return a vector of the world's frame in a pose's frame."""
    x, y, z = vector
    forward, right, up = (a * x + b * y + c * z for a, b, c in pose.axes())
    return forward, right, up


def _rotated(vector: Vector, pose: Pose) -> Vector:
    """Return a vector of a pose's frame in the world's frame."""
    (a, b, c), (d, e, f), (g, h, i) = pose.axes()
    x, y, z = vector
    return a * x + d * y + g * z, b * x + e * y + h * z, c * x + f * y + i * z


register(Gnss, "sensor.other.gnss")
register(Imu, "sensor.other.imu")
