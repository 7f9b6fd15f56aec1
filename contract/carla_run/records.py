"""Converts dataclasses to JSON and back. A file's values must have the types of the fields."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from enum import Enum
from typing import (
    Any,
    Dict,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from carla_run import keys

T = TypeVar("T")
UNIONS = (Union, getattr(types, "UnionType", Union))
"""As written `Optional[int]`, and `int | None`."""
LARGEST = 2**63 - 1
"""The largest whole number that files, NumPy and torch can hold."""
_WORDS = {
    dict: "keys below it",
    list: "a list",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


class RecordError(ValueError):
    """A value that doesn't fit its record. The message is a clause without a full stop."""


def record(kind: Type[T], value: object) -> T:
    """Return a JSON object as a dataclass. Keys must match exactly, and values aren't converted.

    Raises:
        RecordError: a key or value is wrong, or the class refuses it.
    """
    return cast(T, _checked(kind, value, ""))


def plain(value: Any) -> Any:
    """Return a dataclass as JSON data; NaN and infinity become null."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(value: Any, indent: Optional[int] = None) -> str:
    """Return a dataclass, or the result of :func:`plain`, as JSON text with a line end."""
    separators = None if indent else (",", ":")
    return json.dumps(plain(value), indent=indent, separators=separators, ensure_ascii=False, default=str) + "\n"


def _checked(kind: Any, value: Any, where: str) -> Any:
    """Return a value as an instance of a type; ``where`` is its dotted key."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in UNIONS:  # of None and one more
        return None if value is None else _checked(inner[0], value, where)
    if dataclasses.is_dataclass(kind):
        return _object(kind, _of(dict, value, where), where)
    if origin is tuple:
        return tuple(
            _checked(inner[0], each, _below(where, str(at))) for at, each in enumerate(_of(list, value, where))
        )
    if origin is not None:
        return {key: _checked(inner[1], each, _below(where, key)) for key, each in _of(dict, value, where).items()}
    return value if kind is Any else _leaf(kind, value, where)


def _of(kind: Type[T], value: object, where: str) -> T:
    if isinstance(value, kind):
        return value
    raise RecordError(keys.invalid_value(where, value, _WORDS[kind]))


@functools.lru_cache(maxsize=None)
def _types(kind: Any) -> Dict[str, Any]:
    return get_type_hints(kind)  # cached, since evaluating annotations took 90 % of the time to read a heartbeat


def _object(kind: Any, value: Mapping[str, Any], where: str) -> Any:
    fields, types = dataclasses.fields(kind), _types(kind)
    names = sorted(field.name for field in fields)
    for key in value:
        if key not in names:
            raise RecordError(keys.unknown(_below(where, key), names, names, value[key]))
    made = {}
    for field in fields:
        if field.name in value:
            made[field.name] = _checked(types[field.name], value[field.name], _below(where, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecordError(f"`{_below(where, field.name)}` is missing; the example has it")
    return kind(**made)


def _leaf(kind: Any, value: Any, where: str) -> Any:
    if issubclass(kind, Enum):
        words = [each.value for each in kind]
        if not isinstance(value, str) or value not in words:
            raise RecordError(keys.invalid_value(where, value, _either([repr(word) for word in words])))
        return kind(value)
    if kind in (int, float):
        if isinstance(value, bool):
            raise RecordError(keys.invalid_value(where, value, "a number"))
        if isinstance(value, int) and abs(value) > LARGEST:
            raise RecordError(keys.invalid_value(where, value, "a number below 2^63"))
    if kind is float and isinstance(value, int):
        return float(value)
    return _of(kind, value, where)


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)
