"""The types of RPC methods' arguments: a parameter that is annotated with one of these gets it read and checked.

Owns the way from what is on the wire to what a method takes. A parameter of any other type gets what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, get_type_hints

from carla_lite.actors.actor import Actor, Vehicle
from carla_lite.actors.props import Prop
from carla_lite.actors.walkers import Walker
from carla_lite.motion.physics import Body
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.projection import Pose
from carla_lite.world import World

Reader: TypeAlias = Callable[[World, Any], Any]


def _movable(world: World, number: int) -> Body | Walker | None:
    actor = world.actor(number, Actor)
    if isinstance(actor, Prop):
        world.report_unsupported("forces_on_props", "only vehicles push props")
    return actor.body if isinstance(actor, Vehicle) else actor if isinstance(actor, Walker) else None


def _solid(world: World, number: int) -> Vehicle | Walker | Prop | None:
    actor = world.actor(number, Actor)
    return actor if isinstance(actor, Vehicle | Walker | Prop) else None


Finite = Annotated[float, lambda _, raw: wire.finite(raw)]
Direction = Annotated[Vector, lambda _, raw: wire.vector(raw)]
"""Three finite numbers."""
Location = Annotated[Vector, lambda _, raw: wire.location(raw)]
"""A place on a map (m)."""
Place = Annotated[Pose, lambda _, raw: Pose(*wire.place(raw))]
"""A place on a map and a rotation."""
Movable = Annotated[Body | Walker | None, _movable]
"""What forces act on, by an actor's id; None for sensors and the spectator, on which they have no effect, and for
props, which only vehicles push here."""
Solid = Annotated[Vehicle | Walker | Prop | None, _solid]
"""What can be run into, by an actor's id; None likewise."""


def readers(function: Callable[..., Any]) -> list[tuple[int, Reader]]:
    """Return what reads a method's arguments, by their place after the world; an actor's type stands for its id."""
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    found = ((place, _reader(hints.get(name))) for place, name in enumerate(names))
    return [(place, reader) for place, reader in found if reader is not None]


def _reader(kind: Any) -> Reader | None:
    if isinstance(kind, type) and issubclass(kind, Actor):
        return lambda world, number: world.actor(number, kind)
    reader: Reader | None = next(iter(getattr(kind, "__metadata__", ())), None)
    return reader
