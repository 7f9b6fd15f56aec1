"""Contacts between vehicles, and with objects beside the road.

Owns finding overlaps of oriented boxes, pushing them apart and the impulse of the hit. Never touches forces, time or
sensors: ``world`` turns contacts into collision events. Pairs are handled in ascending order of their indices, so equal
states give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from carla_lite.motion.physics import Body
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.statics import StaticBox, StaticIndex

RESTITUTION = 0.1
FRICTION = 0.3
# A body that a client placed this deep inside something is driven out of it, as in PhysX.
DEEP_M, PUSHED_MPS = 0.1, 1.0
_NOTHING = StaticIndex()


@dataclass(frozen=True, slots=True)
class Contact:
    """One hit: ``impulse`` (N s, world frame) acts on body ``index_a``.

    ``index_b`` is the other body's index, or None for a static box; ``static_tag`` is then the box's CityObjectLabel
    and 0 otherwise.
    """

    index_a: int
    index_b: int | None
    static_tag: int
    impulse: tuple[float, float, float]


@dataclass(slots=True)  # not frozen: frozen instances are slower to create, and there is one per body and pair
class Box:
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


def resolve(bodies: Sequence[Body], scene: Scene, signs: StaticIndex = _NOTHING) -> list[Contact]:
    """Separate overlapping bodies, apply the impulses and return the contacts; ``signs`` are boxes not in the scene.

    A body with ``simulate_physics`` off acts like a wall: it reports contacts but never moves.
    """
    contacts: list[Contact] = []
    for a, b in _pairs(bodies):
        hit = _overlap(_box_of(bodies[a]), _box_of(bodies[b]))
        if hit is not None and (bodies[a].simulate_physics or bodies[b].simulate_physics):
            contacts.append(Contact(a, b, 0, _collide(bodies[a], bodies[b], hit)))
    for a, body in enumerate(bodies):
        if body.simulate_physics:
            _resolve_static(contacts, a, body, scene.statics)
            if body.placed:  # a driving body gets into none of these
                _resolve_inside(contacts, a, body, scene.statics)
                _resolve_inside(contacts, a, body, signs)
    return contacts


def box_around(place: Pose, extent: tuple[float, float, float]) -> Box:
    """Return the upright box with these half sizes (m) around a place."""
    length, width, height = extent
    cos, sin = math.cos(place.yaw), math.sin(place.yaw)
    return Box(place.x, place.y, cos, sin, length, width, place.z - height, place.z + height, math.hypot(length, width))


def overlaps(body: Body, box: Box) -> bool:
    """Return whether a body touches a box."""
    return _overlap(_box_of(body), box) is not None


def strike(body: Body, static: StaticBox) -> tuple[float, float, float] | None:
    """Push a body out of a static box and return the impulse on it (N s, world frame), or None if they are apart."""
    hit = _overlap(_box_of(body), static)
    return None if hit is None else _collide(body, None, hit)


def ram(body: Body, owner: Body, part: StaticBox) -> tuple[float, float, float] | None:
    """Push a body and the owner of a protruding box apart.

    Returns:
        The impulse on the body (N s, world frame), or None if it doesn't touch the box.
    """
    hit = _overlap(_box_of(body), part)
    return None if hit is None else _collide(body, owner, hit)


def shove(body: Body, static: StaticBox) -> tuple[float, float] | None:
    """Return how far a box must move out of a body's way (m, world frame), or None if they are apart."""
    hit = _overlap(_box_of(body), static)
    return None if hit is None else (-hit.nx * hit.depth_m, -hit.ny * hit.depth_m)


def _resolve_static(contacts: list[Contact], index: int, body: Body, statics: StaticIndex) -> None:
    x, y, own_reach = body.x, body.y, body.model.reach_m
    if statics.clearances.at(x, y) > own_reach:
        return
    for static in statics.solid_around(x, y, own_reach):
        dx, dy, reach = static.x - x, static.y - y, static.reach_m + own_reach
        if dx * dx + dy * dy > reach * reach:
            continue
        hit = _overlap(_box_of(body), static)
        if hit is not None:
            if body.placed and hit.depth_m > DEEP_M:
                hit = _way_out(body, static, statics, [(hit.depth_m, hit.nx, hit.ny)])
            contacts.append(Contact(index, None, static.tag, _collide(body, None, hit)))
            x, y = body.x, body.y


def _resolve_inside(contacts: list[Contact], index: int, body: Body, statics: StaticIndex) -> None:
    """Move a body that was placed inside a crown or a sign outside."""
    for i in statics.at(body.x, body.y):
        thing = statics.boxes[i]
        if not thing.solid and _holds(thing, body):
            contacts.append(Contact(index, None, thing.tag, _collide(body, None, _way_out(body, thing, statics))))


def _holds(thing: StaticBox, body: Body) -> bool:
    """Return whether a vehicle's centre is in a tree's crown, or a sign's plate in the vehicle.

    A vehicle that drives past only brushes them.
    """
    dx, dy, dz = body.x - thing.x, body.y - thing.y, body.z + body.model.box_centre_z_m - thing.z
    for at, half_height_m in ((thing, thing.half_height_m), (_box_of(body), body.model.half_height_m)):
        along, across = abs(dx * at.cos + dy * at.sin), abs(dy * at.cos - dx * at.sin)
        if along < at.half_length_m and across < at.half_width_m and abs(dz) < half_height_m:
            return True
    return False


def _way_out(
    body: Body, static: StaticBox, statics: StaticIndex, shortest: Sequence[tuple[float, float, float]] = ()
) -> _Hit:
    """Return the shortest way out of a box to a place without another box; houses stand in rows.

    A way is its length and its direction.
    """
    box = _box_of(body)
    x, y = body.x, body.y
    c = abs(box.cos * static.cos + box.sin * static.sin)
    s = abs(box.sin * static.cos - box.cos * static.sin)
    long, wide = body.model.half_length_m, body.model.half_width_m
    ways = [*shortest]
    for u, v, half in (
        (static.cos, static.sin, static.half_length_m + long * c + wide * s),
        (-static.sin, static.cos, static.half_width_m + long * s + wide * c),
    ):
        at = (x - static.x) * u + (y - static.y) * v
        ways += [(half - at, u, v), (half + at, -u, -v)]
    ways.sort()
    for depth_m, u, v in ways:
        box.x, box.y = x + depth_m * u, y + depth_m * v
        near = statics.solid_around(box.x, box.y, box.reach_m)
        if not any(other is not static and _overlap(box, other) is not None for other in near):
            return _Hit(u, v, depth_m, x, y)
    depth_m, u, v = ways[0]
    return _Hit(u, v, depth_m, x, y)


def _box_of(body: Body) -> Box:
    model = body.model
    bottom = body.z + model.box_centre_z_m - model.half_height_m
    top = bottom + 2.0 * model.half_height_m
    cos, sin = math.cos(body.yaw), math.sin(body.yaw)
    return Box(body.x, body.y, cos, sin, model.half_length_m, model.half_width_m, bottom, top, model.reach_m)


def _pairs(bodies: Sequence[Body]) -> list[tuple[int, int]]:
    """Return the pairs of bodies whose circles overlap, ascending; a sweep along x keeps the time near linear."""
    spans = []
    for i, body in enumerate(bodies):
        x, reach = body.x, body.model.reach_m
        spans.append((x - reach, i, x + reach, body.y, reach))
    spans.sort()
    found = []
    for position, (_, a, right, y, reach) in enumerate(spans, 1):
        for other_left, b, _, other_y, other_reach in islice(spans, position, None):
            if other_left > right:
                break
            if abs(other_y - y) <= reach + other_reach:
                found.append((a, b) if a < b else (b, a))
    return sorted(found)


@dataclass(slots=True)
class _Hit:
    """Overlap of two boxes: unit normal from the second to the first, depth along it, and a point of contact."""

    nx: float
    ny: float
    depth_m: float
    x: float
    y: float


def _overlap(a: Box, b: Box | StaticBox) -> _Hit | None:
    """Return the shallowest overlap of two boxes by the separating axis theorem, or None if they are apart."""
    dx, dy = a.x - b.x, a.y - b.y
    if math.hypot(dx, dy) > a.reach_m + b.reach_m or a.bottom > b.top or b.bottom > a.top:
        return None
    cos_a, sin_a, long_a, wide_a = a.cos, a.sin, a.half_length_m, a.half_width_m
    cos_b, sin_b, long_b, wide_b = b.cos, b.sin, b.half_length_m, b.half_width_m
    # The reach of each along both boxes' axes follows from the angle between them (along its own axes 1, but for
    # rounding).
    c, s = abs(cos_a * cos_b + sin_a * sin_b), abs(sin_a * cos_b - cos_a * sin_b)
    one_a, one_b = cos_a * cos_a + sin_a * sin_a, cos_b * cos_b + sin_b * sin_b
    gap = dx * cos_a + dy * sin_a
    depth = long_a * one_a + (long_b * c + wide_b * s) - abs(gap)
    if depth <= 0.0:
        return None
    best, best_gap, best_x, best_y = depth, gap, cos_a, sin_a
    gap = dy * cos_a - dx * sin_a
    depth = wide_a * one_a + (long_b * s + wide_b * c) - abs(gap)
    if depth <= 0.0:
        return None
    if depth < best:
        best, best_gap, best_x, best_y = depth, gap, -sin_a, cos_a
    gap = dx * cos_b + dy * sin_b
    depth = (long_a * c + wide_a * s) + long_b * one_b - abs(gap)
    if depth <= 0.0:
        return None
    if depth < best:
        best, best_gap, best_x, best_y = depth, gap, cos_b, sin_b
    gap = dy * cos_b - dx * sin_b
    depth = (long_a * s + wide_a * c) + wide_b * one_b - abs(gap)
    if depth <= 0.0:
        return None
    if depth < best:
        best, best_gap, best_x, best_y = depth, gap, -sin_b, cos_b
    sign = 1.0 if best_gap >= 0.0 else -1.0
    x, y = _contact_point(a, b)
    return _Hit(sign * best_x, sign * best_y, best, x, y)


def _contact_point(a: Box, b: Box | StaticBox) -> tuple[float, float]:
    """Return the mean of one box's corners inside the other; if there are none, the middle between the centres."""
    inside = [*_corners_inside(a, b), *_corners_inside(b, a)]
    if not inside:
        return 0.5 * (a.x + b.x), 0.5 * (a.y + b.y)
    return sum(x for x, _ in inside) / len(inside), sum(y for _, y in inside) / len(inside)


def _corners_inside(of: Box | StaticBox, within: Box | StaticBox) -> list[tuple[float, float]]:
    found = []
    cos, sin = within.cos, within.sin
    along_x, along_y = of.cos * of.half_length_m, of.sin * of.half_length_m
    across_x, across_y = of.sin * of.half_width_m, of.cos * of.half_width_m
    for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
        x, y = of.x + u * along_x - v * across_x, of.y + u * along_y + v * across_y
        dx, dy = x - within.x, y - within.y
        if abs(dx * cos + dy * sin) <= within.half_length_m and abs(dy * cos - dx * sin) <= within.half_width_m:
            found.append((x, y))
    return found


def _collide(a: Body, b: Body | None, hit: _Hit) -> tuple[float, float, float]:
    """Push both apart along the normal, exchange an impulse at the contact and return the impulse on a (N s)."""
    inverse_a = 1.0 / a.model.mass_kg if a.simulate_physics else 0.0
    inverse_b = 1.0 / b.model.mass_kg if b is not None and b.simulate_physics else 0.0
    if inverse_a + inverse_b == 0.0:  # nothing moves either
        return 0.0, 0.0, 0.0
    part = hit.depth_m / (inverse_a + inverse_b)
    a.x += hit.nx * part * inverse_a
    a.y += hit.ny * part * inverse_a
    if b is not None:
        b.x -= hit.nx * part * inverse_b
        b.y -= hit.ny * part * inverse_b

    speed, mobility = _closing(a, b, hit, hit.nx, hit.ny)
    normal = -(1.0 + RESTITUTION) * speed / mobility
    if hit.depth_m > DEEP_M and (a.placed or (b is not None and b.placed)):
        normal = max(normal, (PUSHED_MPS - min(speed, 0.0)) / mobility)
    if normal <= 0.0:  # already parting
        return 0.0, 0.0, 0.0
    _apply(a, b, hit, normal * hit.nx, normal * hit.ny)
    speed, mobility = _closing(a, b, hit, -hit.ny, hit.nx)
    sliding = -speed / mobility
    along = max(-FRICTION * normal, min(FRICTION * normal, sliding))
    _apply(a, b, hit, -along * hit.ny, along * hit.nx)
    return normal * hit.nx - along * hit.ny, normal * hit.ny + along * hit.nx, 0.0


def _closing(a: Body, b: Body | None, hit: _Hit, x: float, y: float) -> tuple[float, float]:
    """Return the speed at which both contact points part along a unit axis (m/s), and its change per unit impulse
    (1/kg).
    """
    speed, mobility = _at_contact(a, hit, x, y)
    if b is not None:
        other_speed, other_mobility = _at_contact(b, hit, x, y)
        speed, mobility = speed - other_speed, mobility + other_mobility
    return speed, mobility


def _at_contact(body: Body, hit: _Hit, x: float, y: float) -> tuple[float, float]:
    """Return the contact point's speed along (x, y), and its change per unit impulse there (1/kg)."""
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
