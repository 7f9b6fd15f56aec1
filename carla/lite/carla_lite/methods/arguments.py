"""Types of RPC methods' arguments: a parameter annotated with one of these is read from the wire and checked.

Owns the conversion from wire values to arguments. A parameter of any other type gets the value as sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
"""Actors on which forces act, by id; None for sensors and the spectator, where they have no effect, and for props,
which only vehicles push here.
"""
Solid = Annotated[Vehicle | Walker | Prop | None, _solid]
"""Actors that can be hit, by id; None for others."""


@cache  # made for a method's first call: for all of them it takes a hundredth of the start
def readers(function: Callable[..., Any]) -> list[tuple[int, Reader]]:
    """Return the readers of a method's arguments, by position after the world; an actor's type reads an id."""
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    found = ((place, _reader(hints.get(name))) for place, name in enumerate(names))
    return [(place, reader) for place, reader in found if reader is not None]


def _reader(kind: Any) -> Reader | None:
    if isinstance(kind, type) and issubclass(kind, Actor):
        return lambda world, number: world.actor(number, kind)
    reader: Reader | None = next(iter(getattr(kind, "__metadata__", ())), None)
    return reader
