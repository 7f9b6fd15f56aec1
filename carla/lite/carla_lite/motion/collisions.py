"""Contacts between vehicles and with what stands beside the road.

Owns finding overlaps of oriented boxes, pushing them apart and the impulse of the hit. Never touches forces, time or
sensors: ``world`` turns contacts into collision events. Pairs are handled in ascending order of their indices, so the
same state always gives the same result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carla_lite.motion.physics import Body
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.statics import StaticBox, StaticIndex

RESTITUTION = 0.1
FRICTION = 0.3


@dataclass(frozen=True, slots=True)
class Contact:
    """One hit: ``impulse`` (N s, world frame) is what body ``index_a`` received.

    ``index_b`` is the other body's index, or None for a static box; ``static_tag`` is then the box's CityObjectLabel
    and 0 otherwise.
    """

    index_a: int
    index_b: int | None
    static_tag: int
    impulse: tuple[float, float, float]


class _Box(NamedTuple):
    """An upright oriented box seen from above, with its height span."""

    x: float
    y: float
    cos: float
    sin: float
    half_length_m: float
    half_width_m: float
    bottom: float
    top: float
    reach_m: float


def resolve(bodies: Sequence[Body], scene: Scene) -> list[Contact]:
    """Separate what overlaps, change velocities by the hit's impulse and return the contacts.

    A body with ``simulate_physics`` off is hit like a wall: it reports contacts but never moves.
    """
    boxes = [_box_of(body) for body in bodies]
    contacts: list[Contact] = []
    for a, b in _pairs(boxes):
        hit = _overlap(boxes[a], boxes[b])
        if hit is not None and (bodies[a].simulate_physics or bodies[b].simulate_physics):
            contacts.append(Contact(a, b, 0, _collide(bodies[a], bodies[b], hit)))
            boxes[a], boxes[b] = _box_of(bodies[a]), _box_of(bodies[b])
    for a, (body, box) in enumerate(zip(bodies, boxes, strict=True)):
        if body.simulate_physics:
            contacts.extend(_resolve_static(a, body, box, scene.statics))
    return contacts


def overlaps(body: Body, place: Pose, extent: tuple[float, float, float]) -> bool:
    """Return whether a body touches an upright box with these half sizes (m) around a place."""
    length, width, height = extent
    cos, sin = math.cos(place.yaw), math.sin(place.yaw)
    span = place.z - height, place.z + height
    return (
        _overlap(_box_of(body), _Box(place.x, place.y, cos, sin, length, width, *span, math.hypot(length, width)))
        is not None
    )


def strike(body: Body, static: StaticBox) -> tuple[float, float, float] | None:
    """Push a body out of a static box and return the impulse on it (N s, world frame), or None if they are apart."""
    hit = _overlap_static(_box_of(body), static)
    return None if hit is None else _collide(body, None, hit)


def shove(body: Body, static: StaticBox) -> tuple[float, float] | None:
    """Return how far a box has to give way to a body (m, world frame), or None if they are apart."""
    hit = _overlap_static(_box_of(body), static)
    return None if hit is None else (-hit.nx * hit.depth_m, -hit.ny * hit.depth_m)


def _resolve_static(index: int, body: Body, box: _Box, statics: StaticIndex) -> list[Contact]:
    contacts = []
    for static in statics.solid_around(body.x, body.y, box.reach_m):
        dx, dy, reach = static.x - box.x, static.y - box.y, static.reach_m + box.reach_m
        if dx * dx + dy * dy > reach * reach:
            continue
        hit = _overlap_static(box, static)
        if hit is not None:
            contacts.append(Contact(index, None, static.tag, _collide(body, None, hit)))
            box = _box_of(body)
    return contacts


def _overlap_static(box: _Box, static: StaticBox) -> _Hit | None:
    low, high = static.z - static.half_height_m, static.z + static.half_height_m
    turned = static.x, static.y, static.cos, static.sin
    return _overlap(box, _Box(*turned, static.half_length_m, static.half_width_m, low, high, static.reach_m))


def _box_of(body: Body) -> _Box:
    model = body.model
    bottom = body.z + model.box_centre_z_m - model.half_height_m
    top = bottom + 2.0 * model.half_height_m
    cos, sin = math.cos(body.yaw), math.sin(body.yaw)
    return _Box(body.x, body.y, cos, sin, model.half_length_m, model.half_width_m, bottom, top, model.reach_m)


def _pairs(boxes: Sequence[_Box]) -> list[tuple[int, int]]:
    """Return the pairs of boxes whose circles overlap, ascending; a sweep along x keeps it near-linear."""
    order = sorted(range(len(boxes)), key=lambda i: (boxes[i].x - boxes[i].reach_m, i))
    found = []
    for position, a in enumerate(order):
        box = boxes[a]
        right = box.x + box.reach_m
        for b in order[position + 1 :]:
            other = boxes[b]
            if other.x - other.reach_m > right:
                break
            if abs(other.y - box.y) <= box.reach_m + other.reach_m:
                found.append((a, b) if a < b else (b, a))
    return sorted(found)


class _Hit(NamedTuple):
    """How two boxes overlap: unit normal from the second to the first, depth along it, and a point of the contact."""

    nx: float
    ny: float
    depth_m: float
    x: float
    y: float


def _overlap(a: _Box, b: _Box | StaticBox) -> _Hit | None:
    """Return the shallowest overlap of two boxes by the separating axis theorem, or None if they are apart."""
    dx, dy = a.x - b.x, a.y - b.y
    if math.hypot(dx, dy) > a.reach_m + b.reach_m or a.bottom > b.top or b.bottom > a.top:
        return None
    best = (math.inf, 0.0, 0.0)
    for x, y in ((a.cos, a.sin), (-a.sin, a.cos), (b.cos, b.sin), (-b.sin, b.cos)):
        gap = dx * x + dy * y
        depth = _radius(a, x, y) + _radius(b, x, y) - abs(gap)
        if depth <= 0.0:
            return None
        if depth < best[0]:
            sign = 1.0 if gap >= 0.0 else -1.0
            best = (depth, sign * x, sign * y)
    x, y = _contact_point(a, b)
    return _Hit(best[1], best[2], best[0], x, y)


def _radius(box: _Box | StaticBox, x: float, y: float) -> float:
    """Return half the box's extent along the unit axis (x, y)."""
    along = abs(box.cos * x + box.sin * y)
    across = abs(box.cos * y - box.sin * x)
    return box.half_length_m * along + box.half_width_m * across


def _contact_point(a: _Box, b: _Box | StaticBox) -> tuple[float, float]:
    """Return the mean of the corners of one box inside the other, or the middle between the centres if none is."""
    inside = [*_corners_inside(a, b), *_corners_inside(b, a)]
    if not inside:
        return 0.5 * (a.x + b.x), 0.5 * (a.y + b.y)
    return sum(x for x, _ in inside) / len(inside), sum(y for _, y in inside) / len(inside)


def _corners_inside(of: _Box | StaticBox, within: _Box | StaticBox) -> list[tuple[float, float]]:
    found = []
    for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
        along, across = u * of.half_length_m, v * of.half_width_m
        x, y = of.x + of.cos * along - of.sin * across, of.y + of.sin * along + of.cos * across
        dx, dy = x - within.x, y - within.y
        if (
            abs(dx * within.cos + dy * within.sin) <= within.half_length_m
            and abs(dy * within.cos - dx * within.sin) <= within.half_width_m
        ):
            found.append((x, y))
    return found


def _collide(a: Body, b: Body | None, hit: _Hit) -> tuple[float, float, float]:
    """Push both apart along the normal, exchange an impulse at the contact and return a's share of it (N s)."""
    inverse_a = 1.0 / a.model.mass_kg if a.simulate_physics else 0.0
    inverse_b = 1.0 / b.model.mass_kg if b is not None and b.simulate_physics else 0.0
    part = hit.depth_m / (inverse_a + inverse_b)
    a.x += hit.nx * part * inverse_a
    a.y += hit.ny * part * inverse_a
    if b is not None:
        b.x -= hit.nx * part * inverse_b
        b.y -= hit.ny * part * inverse_b

    normal = _impulse(a, b, hit, (hit.nx, hit.ny), RESTITUTION)
    if normal <= 0.0:  # already parting
        return 0.0, 0.0, 0.0
    _apply(a, b, hit, normal * hit.nx, normal * hit.ny)
    sliding = _impulse(a, b, hit, (-hit.ny, hit.nx), 0.0)
    along = max(-FRICTION * normal, min(FRICTION * normal, sliding))
    _apply(a, b, hit, -along * hit.ny, along * hit.nx)
    return normal * hit.nx - along * hit.ny, normal * hit.ny + along * hit.nx, 0.0


def _impulse(a: Body, b: Body | None, hit: _Hit, axis: tuple[float, float], restitution: float) -> float:
    """Return the impulse along a unit axis on a that stops the two points of contact against each other (N s)."""
    speed, mobility = _at_contact(a, hit, *axis)
    if b is not None:
        other_speed, other_mobility = _at_contact(b, hit, *axis)
        speed, mobility = speed - other_speed, mobility + other_mobility
    return -(1.0 + restitution) * speed / mobility


def _at_contact(body: Body, hit: _Hit, x: float, y: float) -> tuple[float, float]:
    """Return the contact point's speed along (x, y) and how far a unit impulse there changes it (1/kg)."""
    rx, ry = hit.x - body.x, hit.y - body.y
    vx, vy, _ = body.world_velocity()
    speed = (vx - body.yaw_rate * ry) * x + (vy + body.yaw_rate * rx) * y
    if not body.simulate_physics:
        return speed, 0.0
    lever = rx * y - ry * x
    return speed, 1.0 / body.model.mass_kg + lever * lever / body.model.yaw_inertia_kgm2


def _apply(a: Body, b: Body | None, hit: _Hit, x: float, y: float) -> None:
    for body, sign in ((a, 1.0), (b, -1.0)):
        if body is None or not body.simulate_physics:
            continue
        vx, vy, vz = body.world_velocity()
        body.set_world_velocity(vx + sign * x / body.model.mass_kg, vy + sign * y / body.model.mass_kg, vz)
        lever = (hit.x - body.x) * y - (hit.y - body.y) * x
        body.yaw_rate += sign * lever / body.model.yaw_inertia_kgm2
