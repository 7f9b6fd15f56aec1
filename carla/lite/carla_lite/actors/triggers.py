"""``static.trigger.friction``: a box on the ground in which tyres have another friction.

Owns which vehicles are inside, and what friction they had before. Moves nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from carla_lite.actors.actor import Actor, Identity, Vehicle
from carla_lite.blueprints.catalogue import Attribute, Blueprint, Kind, register, role
from carla_lite.motion.collisions import box_around, overlaps
from carla_lite.scenery.camera import Pose

FRICTION_TRIGGER = "static.trigger.friction"

# Half sizes in centimetres (AddVariationsForTrigger in ActorBlueprintFunctionLibrary.cpp).
_EXTENTS = ("extent_x", "extent_y", "extent_z")
_NUMBERS = (("friction", "3.5"), *((name, "1.0") for name in _EXTENTS))
register(Blueprint(FRICTION_TRIGGER, (role(), *(Attribute(name, Kind.FLOAT, value) for name, value in _NUMBERS))))


class FrictionTrigger(Actor):
    """Gives the vehicles that enter it its friction, and back their own as they leave."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        """Read the attributes; RpcError if one is no number from 0."""
        super().__init__(identity, place)
        self._friction = self.number("friction", 0.0)
        self._extent = tuple(0.01 * self.number(name, 0.0) for name in _EXTENTS)
        self._before: dict[int, list[float]] = {}

    def act(self, vehicles: Iterable[Vehicle]) -> None:
        """Change the friction of those that entered or left since the last tick."""
        length, width, height = self._extent
        box = box_around(self.pose, (length, width, height))
        for vehicle in vehicles:
            inside = overlaps(vehicle.body, box)
            if inside and vehicle.id not in self._before:
                self._before[vehicle.id] = vehicle.wheel_friction
                vehicle.wheel_friction = [self._friction] * len(vehicle.wheel_friction)
            elif not inside and vehicle.id in self._before:
                vehicle.wheel_friction = self._before.pop(vehicle.id)

    def release(self, vehicles: Iterable[Vehicle]) -> None:
        """Give those inside their own friction back."""
        for vehicle in vehicles:
            if vehicle.id in self._before:
                vehicle.wheel_friction = self._before.pop(vehicle.id)
