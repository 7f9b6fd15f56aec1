"""Vehicles that hit walkers.

Owns the detection of hits and their effect: the car hardly slows down, the walker is thrown ahead of it. Pairs are
handled in the order of the vehicles, then of the walkers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from carla_lite.actors.walkers import Walker
from carla_lite.motion.collisions import Contact
from carla_lite.motion.physics import Body

# A body is soft: the impact brings it to the car's speed, without a rebound.
# A walker that walks against a parked car just stops; it takes this impact to fall.
FALLS_FROM_MPS = 1.0


class WalkerHit(NamedTuple):
    """Indices of the vehicle and the walker, and the contact: its impulse is the vehicle's."""

    vehicle: int
    walker: int
    contact: Contact


def resolve(bodies: Sequence[Body], walkers: Sequence[Walker]) -> list[WalkerHit]:
    """Push walkers out of vehicles that they overlap, exchange momentum, and return the hits with closing speed."""
    if not bodies or not walkers:
        return []
    x, y = np.array([(walker.x, walker.y) for walker in walkers]).T
    cars = [(body.x, body.y, body.model.reach_m + 0.5) for body in bodies]
    car_x, car_y, reach = np.array(cars).T[..., None]
    near = (np.abs(car_x - x) < reach) & (np.abs(car_y - y) < reach)
    hits = []
    for a, b in np.argwhere(near).tolist():
        impulse = _meet(bodies[a], walkers[b])
        if impulse is not None:
            hits.append(WalkerHit(a, b, Contact(a, None, 0, impulse)))
    return hits


def touches(body: Body, walker: Walker) -> bool:
    """Return whether a walker overlaps a vehicle."""
    return _overlap(body, walker) is not None


def is_blocked(walker: Walker, bodies: Sequence[Body], others: Sequence[Walker]) -> bool:
    """Return whether a walker or a vehicle is in a walker's way."""
    return any(
        math.hypot(other.x - walker.x, other.y - walker.y) < walker.radius_m + other.radius_m
        and abs(other.z - walker.z) < walker.half_height_m + other.half_height_m
        for other in others
    ) or any(touches(body, walker) for body in bodies)


def _overlap(body: Body, walker: Walker) -> tuple[float, float, float] | None:
    """Return the normal from the vehicle to the walker and the depth along it (m); None if they don't touch."""
    model = body.model
    height = walker.radius_m if walker.lies else walker.half_height_m
    bottom = body.z + model.box_centre_z_m - model.half_height_m
    if walker.z - height > bottom + 2.0 * model.half_height_m or walker.z + height < bottom:
        return None
    cos, sin = math.cos(body.yaw), math.sin(body.yaw)
    dx, dy = walker.x - body.x, walker.y - body.y
    along, across = cos * dx + sin * dy, cos * dy - sin * dx
    over_x = model.half_length_m + walker.radius_m - abs(along)
    over_y = model.half_width_m + walker.radius_m - abs(across)
    if over_x <= 0.0 or over_y <= 0.0:
        return None
    if over_x < over_y:
        side = math.copysign(1.0, along)
        return side * cos, side * sin, over_x
    side = math.copysign(1.0, across)
    return -side * sin, side * cos, over_y


def _meet(body: Body, walker: Walker) -> tuple[float, float, float] | None:
    found = _overlap(body, walker)
    if found is None:
        return None
    nx, ny, depth = found
    if walker.simulate_physics:
        walker.x, walker.y = walker.x + nx * depth, walker.y + ny * depth
    vx, vy, _ = body.world_velocity()
    closing = (vx - walker.vx) * nx + (vy - walker.vy) * ny
    if closing <= 0.0:
        return None
    inverse = 1.0 / walker.mass_kg + (1.0 / body.model.mass_kg if body.simulate_physics else 0.0)
    size = closing / inverse
    if body.simulate_physics:
        body.push((-size * nx, -size * ny, 0.0))
    change = size / walker.mass_kg
    velocity = walker.vx + change * nx, walker.vy + change * ny
    if vx * nx + vy * ny > FALLS_FROM_MPS:
        walker.hit(*velocity)
    else:
        walker.set_world_velocity(*velocity, walker.vz)
    return -size * nx, -size * ny, 0.0
