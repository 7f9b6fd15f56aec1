"""The table of RPC methods: one decorated function a method, found by its name.

Owns the table, the wrapping of results and what a client gets when a call fails. The functions themselves live in
``episode``, ``actor``, ``vehicle`` and ``commands``; a new method is one more function there.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from carla_lite.protocol.wire import RpcError
from carla_lite.world import World

Method = Callable[..., Any]
F = TypeVar("F", bound=Method)

_METHODS: dict[str, Method] = {}


class Bare(list[Any]):
    """A result that goes out as it is, without the wrapping of section 2.1 (only ``apply_batch``)."""


def method(function: F) -> F:
    """Enter ``function(world, *args)`` as the RPC method of its name.

    It returns the result, or None for void, and raises ``RpcError`` with a sentence for the caller.

    Raises:
        ValueError: there is another one of that name.
    """
    name = function.__name__
    if (other := _METHODS.setdefault(name, function)) is not function:
        raise ValueError(
            f"RPC method {name} of {function.__module__} is in {other.__module__} already: rename one of them."
        )
    return function


def call(world: World, name: str, args: list[Any]) -> Any:
    """Return a method's plain result.

    Raises:
        RpcError: no such method, or it refuses.
    """
    if name not in _METHODS:
        world.report_unsupported(name)
        raise RpcError(f"carla-lite has no method {name}")
    return _METHODS[name](world, *args)


def answer(world: World, name: str, args: list[Any]) -> object:
    """Return a method's result as the client expects it (protocol, section 2.1); never raises an ``Exception``."""
    try:
        result = call(world, name, args)
    except RpcError as error:
        return failure(str(error))
    except Exception as error:  # one bad call of one client must not end the others' world
        traceback.print_exc(file=sys.stderr)
        return failure(f"{name} failed in carla-lite: {type(error).__name__}: {error}")
    if isinstance(result, Bare):
        return result
    return [[False]] if result is None else [[1, result]]


def failure(message: str) -> list[Any]:
    """Return what both kinds of call, void and not, read as a failure."""
    return [[0, [message]]]
