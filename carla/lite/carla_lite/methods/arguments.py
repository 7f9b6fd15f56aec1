"""Types of RPC methods' arguments: a parameter's annotation says what the wire has to send, and how it is read.

Owns the check of a call's arguments and their conversion. An annotation is a shape (``shapes``), a class of actors,
which is read from an id, or one of the types below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

from carla_lite.actors.actor import Actor, Vehicle
from carla_lite.actors.props import Prop
from carla_lite.actors.walkers import Walker
from carla_lite.methods.shapes import Shape, require, shape
from carla_lite.motion.physics import Body
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError, Vector
from carla_lite.scenery.projection import Pose
from carla_lite.world import World

Reader: TypeAlias = Callable[[World, Any], Any]


class Read(NamedTuple):
    """How an argument is read: the shape that is sent, and what makes the argument of it."""

    sent: Any
    reader: Reader


def _movable(world: World, number: int) -> Body | Walker | None:
    actor = world.actor(number, Actor)
    if isinstance(actor, Prop):
        world.report_unsupported("forces_on_props", "only vehicles push props")
    return actor.body if isinstance(actor, Vehicle) else actor if isinstance(actor, Walker) else None


def _solid(world: World, number: int) -> Vehicle | Walker | Prop | None:
    actor = world.actor(number, Actor)
    return actor if isinstance(actor, Vehicle | Walker | Prop) else None


def _unless_gone(reader: Reader) -> Reader:
    return lambda world, number: None if world.forgives(number) else reader(world, number)


Finite = Annotated[float, Read(float, lambda _, raw: wire.finite(raw))]
Direction = Annotated[Vector, Read(Vector, lambda _, raw: wire.vector(raw))]
"""Three finite numbers."""
Location = Annotated[Vector, Read(Vector, lambda _, raw: wire.location(raw))]
"""A place on a map (m)."""
Transform: TypeAlias = tuple[Vector, Vector]
"""As sent: location (m) and pitch, yaw, roll (degrees)."""
Place = Annotated[Pose, Read(Transform, lambda _, raw: Pose(*wire.place(raw)))]
"""A place on a map and a rotation."""
Movable = Annotated[Body | Walker | None, Read(int, _movable)]
"""Actors on which forces act, by id; None for sensors and the spectator, where they have no effect, and for props,
which only vehicles push here.
"""
Solid = Annotated[Vehicle | Walker | Prop | None, Read(int, _solid)]
"""Actors that can be hit, by id; None for others."""
MovableOrGone = Annotated[Body | Walker | None, Read(int, _unless_gone(_movable))]
SolidOrGone = Annotated[Vehicle | Walker | Prop | None, Read(int, _unless_gone(_solid))]
"""The same for calls of a Traffic Manager, which may come for actors that are destroyed: None for these, too."""
Description: TypeAlias = tuple[int, str, list[tuple[str, int, str]]]
"""ActorDescription: the blueprint's number and id, and id, type and value of each attribute."""


class Parameter(NamedTuple):
    """A parameter of a method: its name, what is sent for it, and how it is read; None for as it is sent."""

    name: str
    sent: Shape
    reader: Reader | None


class Parameters(NamedTuple):
    """The parameters of a method after the world: a call gives at least ``least``; ``more`` takes any number."""

    all: tuple[Parameter, ...]
    least: int
    more: bool

    def read(self, world: World, method: str, given: list[Any]) -> list[Any]:
        """Return the arguments for values in wire format.

        Raises:
            RpcError: there are too few or too many, one has another shape, or can't be read.
        """
        if not self.least <= len(given) or (len(given) > len(self.all) and not self.more):
            wanted = f"{self.least}" if self.least == len(self.all) else f"{self.least} to {len(self.all)}"
            raise RpcError(f"{method} got {len(given)} arguments, expected {wanted}")
        read = list(given)
        for place, (parameter, value) in enumerate(zip(self.all, given, strict=False)):
            require(parameter.sent, value, f"{method}: {parameter.name}")
            if parameter.reader is not None:
                read[place] = parameter.reader(world, value)
        return read


@cache  # made for a method's first call: for all of them it takes a hundredth of the start
def parameters(function: Callable[..., Any]) -> Parameters:
    """Return the parameters of a method, by its annotations."""
    hints = get_type_hints(function, include_extras=True)
    _world, *others = inspect.signature(function).parameters.values()
    named = [each for each in others if each.kind is not each.VAR_POSITIONAL]
    least = sum(each.default is each.empty for each in named)
    return Parameters(tuple(_parameter(each.name, hints[each.name]) for each in named), least, len(named) < len(others))


def _parameter(name: str, kind: Any) -> Parameter:
    found = read_of(kind)
    sent, reader = (kind, None) if found is None else found
    return Parameter(name.lstrip("_"), shape(sent), reader)


def read_of(kind: Any) -> Read | None:
    """Return how an argument of a type is read; None for as it is sent."""
    if isinstance(kind, type) and issubclass(kind, Actor):
        return Read(int, lambda world, number: world.actor(number, kind))
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Read)), None)
