"""Vehicles that hit walkers.

Owns the detection of hits and their effect: the car hardly slows down, the walker is thrown ahead of it. Pairs are
handled in the order of the vehicles, then of the walkers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from carla_lite.actors.crowd import Column, Floats
from carla_lite.actors.walkers import Walker
from carla_lite.motion.collisions import Contact
from carla_lite.motion.physics import Body

# A body is soft: the impact brings it to the car's speed, without a rebound.
# A walker that walks against a parked car just stops; it takes this impact to fall.
FALLS_FROM_MPS = 1.0
_SLACK_M = 1e-6


class WalkerHit(NamedTuple):
    """Indices of the vehicle and the walker, and the contact: its impulse is the vehicle's."""

    vehicle: int
    walker: int
    contact: Contact


def resolve(bodies: Sequence[Body], walkers: Sequence[Walker], states: Floats) -> list[WalkerHit]:
    """Push walkers out of vehicles that they overlap, exchange momentum, and return the hits with closing speed.

    ``states`` are the walkers' (columns, n).
    """
    if not bodies or not walkers:
        return []
    hits: list[WalkerHit] = []
    moved: set[int] = set()
    for a, b, touch in zip(*_near(bodies, states), strict=True):
        if not touch and b not in moved:
            continue
        impulse = _meet(bodies[a], walkers[b])
        moved.add(b)
        if impulse is not None:
            hits.append(WalkerHit(a, b, Contact(a, None, 0, impulse)))
    return hits


_shape = attrgetter("x", "y", "yaw", "model.half_length_m", "model.half_width_m", "model.reach_m")


def _near(bodies: Sequence[Body], states: Floats) -> tuple[list[int], list[int], list[bool]]:
    """Return the pairs that are near each other, ascending, and whether they touch as seen from above."""
    x, y, radius = states[Column.X], states[Column.Y], states[Column.RADIUS_M]
    cars = np.array([_shape(body) for body in bodies]).T
    reach = cars[5] + 0.5
    # Along x both are in order: the walkers beside each car follow each other.
    order = x.argsort()
    along = x[order]
    first, last = along.searchsorted(cars[0] - reach), along.searchsorted(cars[0] + reach)
    counts = last - first
    a = np.repeat(np.arange(len(bodies)), counts)
    b = order[np.arange(len(a)) + np.repeat(first - (counts.cumsum() - counts), counts)]
    dx, dy = x[b] - cars[0, a], y[b] - cars[1, a]
    near = (np.abs(dy) < reach[a]).nonzero()[0]
    near = near[np.lexsort((b[near], a[near]))]
    a, b, dx, dy = a[near], b[near], dx[near], dy[near]
    cos, sin = np.cos(cars[2, a]), np.sin(cars[2, a])
    over_x = cars[3, a] + radius[b] - np.abs(cos * dx + sin * dy)
    over_y = cars[4, a] + radius[b] - np.abs(cos * dy - sin * dx)
    # Rounding may differ from that of ``_overlap``, which decides.
    touch = (over_x > -_SLACK_M) & (over_y > -_SLACK_M)
    return a.tolist(), b.tolist(), touch.tolist()


def touches(body: Body, walker: Walker) -> bool:
    """Return whether a walker overlaps a vehicle."""
    return _overlap(body, walker, walker.state.tolist()) is not None


def is_blocked(walker: Walker, bodies: Sequence[Body], others: Sequence[Walker]) -> bool:
    """Return whether a walker or a vehicle is in a walker's way."""
    return any(
        math.hypot(other.x - walker.x, other.y - walker.y) < walker.radius_m + other.radius_m
        and abs(other.z - walker.z) < walker.half_height_m + other.half_height_m
        for other in others
    ) or any(touches(body, walker) for body in bodies)


def _overlap(body: Body, walker: Walker, state: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the normal from the vehicle to the walker and the depth along it (m); None if they don't touch."""
    model = body.model
    x, y, z = state[:3]
    height = walker.radius_m if state[Column.LIES_S] > 0.0 else walker.half_height_m
    bottom = body.z + model.box_centre_z_m - model.half_height_m
    if z - height > bottom + 2.0 * model.half_height_m or z + height < bottom:
        return None
    cos, sin = math.cos(body.yaw), math.sin(body.yaw)
    dx, dy = x - body.x, y - body.y
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
    state = walker.state.tolist()
    found = _overlap(body, walker, state)
    if found is None:
        return None
    nx, ny, depth = found
    x, y, _, _, walker_vx, walker_vy, walker_vz, *_ = state
    if state[Column.PHYSICS]:
        walker.state[:2] = x + nx * depth, y + ny * depth
    vx, vy, _ = body.world_velocity()
    closing = (vx - walker_vx) * nx + (vy - walker_vy) * ny
    if closing <= 0.0:
        return None
    inverse = 1.0 / walker.mass_kg + (1.0 / body.model.mass_kg if body.simulate_physics else 0.0)
    size = closing / inverse
    if body.simulate_physics:
        body.push((-size * nx, -size * ny, 0.0))
    change = size / walker.mass_kg
    velocity = walker_vx + change * nx, walker_vy + change * ny
    if vx * nx + vy * ny > FALLS_FROM_MPS:
        walker.hit(*velocity)
    else:
        walker.set_world_velocity(*velocity, walker_vz)
    return -size * nx, -size * ny, 0.0
