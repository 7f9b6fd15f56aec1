"""``static.trigger.friction``: a box on the ground that changes the friction of tyres inside it.

Owns which vehicles are inside, and their friction before. Moves nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from carla_lite.actors.actor import Actor, Identity, Vehicle, register
from carla_lite.actors.surroundings import Surroundings
from carla_lite.blueprints.catalogue import FRICTION_TRIGGER
from carla_lite.motion.collisions import box_around, overlaps
from carla_lite.scenery.camera import Pose


class FrictionTrigger(Actor):
    """Gives its friction to vehicles that enter it, and restores theirs when they leave."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        """Read the attributes; raises RpcError if one isn't a number from 0 on."""
        super().__init__(identity, place)
        self._friction = self.number("friction", 0.0)
        self._extent = tuple(0.01 * self.number(f"extent_{axis}", 0.0) for axis in "xyz")
        self._before: dict[int, list[float]] = {}

    def act(self, vehicles: Iterable[Vehicle]) -> None:
        """Change the friction of vehicles that entered or left since the last tick."""
        length, width, height = self._extent
        box = box_around(self.pose, (length, width, height))
        for vehicle in vehicles:
            inside = overlaps(vehicle.body, box)
            if inside and vehicle.id not in self._before:
                self._before[vehicle.id] = vehicle.wheel_friction
                vehicle.wheel_friction = [self._friction] * len(vehicle.wheel_friction)
            elif not inside and vehicle.id in self._before:
                vehicle.wheel_friction = self._before.pop(vehicle.id)

    def entered(self, world: Surroundings) -> None:
        """Join the world's triggers."""
        world.triggers.append(self)

    def left(self, world: Surroundings) -> None:
        """Restore the friction of the vehicles inside."""
        world.triggers.remove(self)
        for vehicle in world.vehicles:
            if vehicle.id in self._before:
                vehicle.wheel_friction = self._before.pop(vehicle.id)


register(FrictionTrigger, FRICTION_TRIGGER.id)
