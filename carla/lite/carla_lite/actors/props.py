"""Props: things that programs place on streets.

Owns a prop's box and what happens to vehicles that hit it. A prop is as firm as a wall until a client lets it simulate
physics; then vehicles push it aside, and hardly feel it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from carla_lite.actors.actor import Actor, Identity, Vehicle, register
from carla_lite.actors.surroundings import Surroundings
from carla_lite.blueprints.catalogue import ids_of
from carla_lite.blueprints.props import MESH, PropBlueprint
from carla_lite.motion import collisions
from carla_lite.motion.collisions import Contact
from carla_lite.motion.physics import Body
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.prop_meshes import Thing
from carla_lite.scenery.statics import StaticBox
from carla_lite.support import Support, approximated, without_effect

# Tyres roll over anything lower.
LOW_M = 0.15


class Prop(Actor):
    """A prop. Its origin is the centre of its underside; it stays upright however it is turned."""

    support: ClassVar[Support] = approximated("a simple shape of the usual size, which only vehicles push")

    def __init__(self, identity: Identity, place: Pose) -> None:
        blueprint = identity.blueprint
        assert isinstance(blueprint, PropBlueprint)
        self._size_m, self._colour, self._shape = blueprint.size_m, blueprint.colour, blueprint.shape
        self._tag, self._mass_kg = blueprint.semantic_tags[0], blueprint.mass_kg
        self.collides = blueprint.size_m[2] > LOW_M
        self.simulate_physics = False
        super().__init__(identity, place)

    def entered(self, world: Surroundings) -> None:
        """Join the world's props."""
        world.props.append(self)

    def left(self, world: Surroundings) -> None:
        """Leave the world's props."""
        world.props.remove(self)

    @property
    def place(self) -> Pose:
        """Pose of its underside; relative to its parent if it has one."""
        return self._place

    @place.setter
    def place(self, place: Pose) -> None:
        self._place = place
        self._solid: StaticBox | None = None

    @property
    def at(self) -> Pose:
        """Its pose in the world."""
        return self.pose

    @property
    def solid(self) -> StaticBox:
        """The box that vehicles can hit."""
        if self._solid is None or self.parent is not None:
            length, width, height = self._size_m
            at = self.pose
            centre, halves = (at.x, at.y, at.z + 0.5 * height), (0.5 * length, 0.5 * width, 0.5 * height)
            self._solid = StaticBox(*centre, *halves, at.yaw, self._colour, self._tag)
        return self._solid

    def box(self) -> list[Any]:
        """Return the BoundingBox struct."""
        length, width, height = self._size_m
        return wire.bounding_box((0.0, 0.0, 0.5 * height), (0.5 * length, 0.5 * width, 0.5 * height))

    def drawn(self, _elapsed_s: float = 0.0) -> Thing:
        """Return its shape for cameras."""
        box = self.solid
        pose = Pose(*box.centre, 0.0, box.yaw, 0.0)
        return Thing(pose, box.extent, self._colour, self._shape, self._tag, self.id)

    def give_way(self, body: Body) -> Vector | None:
        """Move out of a vehicle's way; return the impulse on the prop (N s), or None if it isn't here."""
        way = collisions.shove(body, self.solid)
        if way is None:
            return None
        x, y = way
        at, far = self.place, math.hypot(x, y)
        self.place = Pose(at.x + x, at.y + y, at.z, at.pitch, at.yaw, at.roll)
        vx, vy, _ = body.world_velocity()
        closing = max(0.0, (vx * x + vy * y) / far)
        size = closing / (1.0 / self._mass_kg + 1.0 / body.model.mass_kg)
        impulse = -size * x / far, -size * y / far, 0.0
        body.push(impulse)
        return impulse

    def surrounds(self, x: float, y: float, z: float) -> bool:
        """Return whether a point is inside it."""
        box = self.solid
        dx, dy = x - box.x, y - box.y
        along, across = dx * box.cos + dy * box.sin, dy * box.cos - dx * box.sin
        inside = abs(along) < box.half_length_m and abs(across) < box.half_width_m
        return inside and abs(z - box.z) < box.half_height_m


class Mesh(Actor):
    """A mesh of CARLA's content; here it can be neither seen nor hit."""

    support: ClassVar[Support] = without_effect("it shows a mesh of CARLA's own content, which isn't here")

    def entered(self, world: Surroundings) -> None:
        """Report that it isn't supported."""
        world.report_unsupported(MESH, self.support.how)


register(Prop, *ids_of(PropBlueprint))
register(Mesh, MESH)


def is_blocked(body: Body, props: Sequence[Prop]) -> bool:
    """Return whether a prop is in a vehicle's way."""
    return any(prop.collides and collisions.shove(body, prop.solid) is not None for prop in props)


def resolve(vehicles: Sequence[Vehicle], props: Sequence[Prop]) -> list[tuple[Vehicle, Prop, Contact]]:
    """Keep vehicles apart from props that aren't fixed to them; return each approaching contact with its two."""
    found = []
    for index, vehicle in enumerate(vehicles):
        body = vehicle.body
        for prop in props:
            if prop.hangs_on(vehicle):
                continue
            impulse = (
                prop.give_way(body)
                if prop.simulate_physics and prop.parent is None
                else collisions.strike(body, prop.solid)
            )
            if impulse is not None and any(impulse):
                found.append((vehicle, prop, Contact(index, None, 0, impulse)))
    return found
