"""The table of RPC methods: one decorated function per method, found by its name.

Owns the table, the wrapping of results and the error that a client gets when a call fails. The functions are in the
modules beside this one; a new method is one more function there, with argument types from ``arguments``.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

from carla_lite.methods.arguments import parameters
from carla_lite.protocol.wire import RpcError
from carla_lite.support import WORKS, Status, Support, refused
from carla_lite.world import World

F = TypeVar("F", bound=Callable[..., Any])


class _Method(NamedTuple):
    function: Callable[..., Any]
    support: Support


_METHODS: dict[str, _Method] = {}


class Bare(list[Any]):
    """A result that is sent as it is, without the wrapping of section 2.1 (only ``apply_batch``)."""


@overload
def method(function: F) -> F: ...
@overload
def method(function: Support) -> Callable[[F], F]: ...
def method(function: F | Support) -> F | Callable[[F], F]:
    """Register ``function(world, *args)`` as the RPC method of its name; ``@method(support)`` says how far it matches
    CARLA.

    It returns the result, or None for void, and raises ``RpcError`` with a sentence for the caller.

    Raises:
        ValueError: there is already one of that name.
    """
    if isinstance(function, Support):
        return lambda decorated: _enter(decorated.__name__, decorated, function)
    return _enter(function.__name__, function, WORKS)


def refuse(name: str, sentence: str) -> None:
    """Register a method that is always refused with this sentence, which is also logged: some callers read no reply."""

    def refusal(world: World, *_args: Any) -> None:
        world.report_unsupported(name, sentence)
        raise RpcError(sentence)

    _enter(name, refusal, refused(sentence))


def _enter(name: str, function: F, support: Support) -> F:
    if name in _METHODS:
        other = _METHODS[name].function.__module__
        raise ValueError(f"RPC method {name} of {function.__module__} is in {other} already: rename one of them.")
    _METHODS[name] = _Method(function, support)
    return function


def supported() -> dict[str, Support]:
    """Return how far each method matches CARLA, by name."""
    return {name: each.support for name, each in _METHODS.items()}


def call(world: World, name: str, args: list[Any]) -> Any:
    """Return a method's plain result for arguments in wire format.

    Raises:
        RpcError: there is no such method, or it refuses.
    """
    if name not in _METHODS:
        world.report_unsupported(name, "carla-lite has no such method")
        raise RpcError(f"carla-lite has no method {name}")
    function, support = _METHODS[name]
    given = parameters(function).read(world, name, args)
    if support.status is Status.WITHOUT_EFFECT:
        world.report_unsupported(name, support.how)
    return function(world, *given)


def answer(world: World, name: str, args: list[Any]) -> object:
    """Return a method's result in the form that the client expects (protocol, section 2.1); raises no ``Exception``."""
    try:
        result = call(world, name, args)
    except RpcError as error:
        return failure(str(error))
    except Exception as error:  # one client's bad call must not end the world of the others
        return broken(name, error)
    if isinstance(result, Bare):
        return result
    return [[False]] if result is None else [[1, result]]


def broken(name: str, error: Exception) -> list[Any]:
    """Return the failure of a method by an error of carla-lite, and print where it came from."""
    traceback.print_exc(file=sys.stderr)
    return failure(f"{name} failed in carla-lite: {type(error).__name__}: {error}")


def failure(message: str) -> list[Any]:
    """Return a failure that both kinds of call, void and not, can read."""
    return [[0, [message]]]
