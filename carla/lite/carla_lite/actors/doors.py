"""Open doors: leaves beside a vehicle, which other vehicles can hit.

Owns where a leaf is and which vehicle hits it. CARLA doesn't publish the hinges of its doors; these are a saloon's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from carla_lite.actors.actor import Vehicle
from carla_lite.motion import collisions
from carla_lite.motion.collisions import Contact
from carla_lite.scenery.statics import StaticBox

_OPENS_RAD = math.radians(65.0)
_HALF_THICKNESS_M = 0.05
# As shares of the vehicle's half length: the hinges of front and rear doors, and half a leaf.
_HINGES, _HALF_LEAF = (0.35, -0.1), 0.2
_BLACK = (0, 0, 0)


def leaves(vehicle: Vehicle) -> Iterator[StaticBox]:
    """Yield the box of each open door; 0 to 3 are front left, front right, rear left, rear right."""
    body, model = vehicle.body, vehicle.body.model
    c, s = math.cos(body.yaw), math.sin(body.yaw)
    half_m, z = _HALF_LEAF * model.half_length_m, body.z + model.box_centre_z_m
    for door in sorted(vehicle.open_doors):
        side = 1.0 if door % 2 else -1.0
        along = _HINGES[door // 2] * model.half_length_m - half_m * math.cos(_OPENS_RAD)
        aside = side * (model.half_width_m + half_m * math.sin(_OPENS_RAD))
        x, y = body.x + c * along - s * aside, body.y + s * along + c * aside
        yaw = body.yaw - side * _OPENS_RAD
        half_height_m = 0.6 * model.half_height_m
        tag = vehicle.blueprint.semantic_tags[0]
        yield StaticBox(x, y, z, half_m, _HALF_THICKNESS_M, half_height_m, yaw, _BLACK, tag)


def resolve(vehicles: Sequence[Vehicle]) -> list[tuple[Vehicle, Vehicle, Contact]]:
    """Keep vehicles out of other vehicles' open doors.

    Returns:
        For each approaching contact: the vehicle, the owner of the door, and the contact, with the first one's impulse.
    """
    found = []
    for owner in vehicles:
        for leaf in leaves(owner) if owner.open_doors else ():
            for index, other in enumerate(vehicles):
                impulse = None if other is owner else collisions.ram(other.body, owner.body, leaf)
                if impulse is not None and any(impulse):
                    found.append((other, owner, Contact(index, None, 0, impulse)))
    return found
