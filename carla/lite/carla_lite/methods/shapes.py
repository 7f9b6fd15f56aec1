"""Shapes of wire values: types as annotations write them, and whether a value has one.

A struct is a ``tuple`` with the types of its fields; an optional value is a ``Maybe``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

from carla_lite.protocol.wire import RpcError

T = TypeVar("T")

Maybe: TypeAlias = tuple[Literal[False]] | tuple[Literal[True], T]
"""``[false]`` or ``[true, x]``."""


class Shape(NamedTuple):
    """A test of wire values, and what it expects, for the caller."""

    fits: Callable[[Any], bool]
    words: str


_PLAIN: dict[Any, Shape] = {
    Any: Shape(lambda _value: True, "anything"),
    bool: Shape(lambda value: isinstance(value, bool), "true or false"),
    int: Shape(lambda value: type(value) is int, "a whole number"),
    float: Shape(lambda value: type(value) in (float, int), "a number"),
    str: Shape(lambda value: isinstance(value, str), "text"),
    bytes: Shape(lambda value: isinstance(value, bytes), "bytes"),
}


def shape(kind: Any) -> Shape:
    """Return the shape of a type: one of a value, a list, a struct, a literal, or a union of these."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return _list(shape(inner[0]))
    if origin is tuple:
        return _struct([*map(shape, inner)])
    if origin is Literal:
        return Shape(lambda value: value is inner[0], str(inner[0]).lower())
    if origin in (Union, UnionType):
        several = [*map(shape, inner)]
        return Shape(lambda value: any(one.fits(value) for one in several), " or ".join(one.words for one in several))
    return _PLAIN[kind]


def _list(one: Shape) -> Shape:
    return Shape(lambda value: isinstance(value, list) and all(map(one.fits, value)), f"a list of {one.words}")


def _struct(fields: list[Shape]) -> Shape:
    def fits(value: Any) -> bool:
        if not isinstance(value, list) or len(value) != len(fields):
            return False
        return all(field.fits(part) for field, part in zip(fields, value, strict=True))

    return Shape(fits, f"[{', '.join(field.words for field in fields)}]")


def require(wanted: Shape, value: Any, what: str) -> None:
    """Refuse a value of another shape; ``what`` names it for the caller.

    Raises:
        RpcError: it has another shape.
    """
    if not wanted.fits(value):
        raise RpcError(f"{what} is {reprlib.repr(value)}, expected {wanted.words}")
