"""What a person reads of a value that doesn't fit its model: one clause, whatever pydantic says.

Owns the words, and the search for the key that an unknown one may stand for. Knows no model.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from carla_run.section import keys_of, members, model_in

_ALIKE = 0.75
_SUGGESTED = 3
_SHORTEST_PART = 6
_SHOWN = 60
_KEY = "[key]"  # pydantic's word, at the end of a place, for a wrong key of a dictionary


def clause(error: ValidationError, model: type[BaseModel], complete: str = "the example") -> str:
    """Return what is wrong first, without a full stop: the key, its value, what was expected.

    Args:
        error: of validating ``model``.
        model: names the keys that there are.
        complete: a file that has every key that is needed.
    """
    errors, first = error.errors(), _first(error)
    where, beside = _place(model, first["loc"])
    if _is_of_a_key(first):
        return f"unknown key `{where}`{_instead(where, beside, model, first['input'])}"
    if first["type"] == "missing":
        if isinstance(first["loc"][-1], int):
            return f"`{where.rpartition('.')[0]}` has too few values"
        return f"`{where}` is missing; {complete} has it"
    if first["type"] in ("value_error", "assertion_error"):
        said = str(first["msg"]).partition(", ")[2]
        return said if where in said else f"`{where}`: {said}"
    expected = [_expected(each) for each in errors if _place(model, each["loc"])[0] == where]  # a union has several
    subject = f"`{where}`" if where else "all of it"
    return f"{subject} is {shown(first['input'])}; expected {' or '.join(dict.fromkeys(expected))}"


def key(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the dotted key of what is wrong first; empty where it is of the whole model."""
    return _place(model, _first(error)["loc"])[0]


def _first(error: ValidationError) -> ErrorDetails:
    errors = error.errors()
    return next((each for each in errors if _is_of_a_key(each)), errors[0])


def _is_of_a_key(error: ErrorDetails) -> bool:
    return error["type"] in ("extra_forbidden", "invalid_key") or _KEY in error["loc"]


def _place(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, list[str]]:
    """Return the dotted key of a place, without pydantic's names of types in it, and the keys that there are beside."""
    parts: list[str] = []
    here: Any = model
    beside: list[str] = []
    for part in loc:
        section, container = model_in(here), _container_in(here)
        if section is not None:
            beside = sorted(section.model_fields)
            here = section.model_fields[str(part)].annotation if part in section.model_fields else None
        elif container is not None:
            beside = _names(get_args(container)[0])
            here = next(each for each in reversed(get_args(container)) if each is not Ellipsis)
        else:
            continue
        parts.append(str(part))
    return ".".join(parts), beside


def _container_in(annotation: Any) -> Any:
    return next((each for each in members(annotation) if get_origin(each) in (dict, tuple)), None)


def _names(annotation: Any) -> list[str]:
    """Return the keys that a dictionary can have, where they are a few names."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(each.value) for each in annotation]
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def _instead(where: str, beside: Sequence[str], model: type[BaseModel], value: object) -> str:
    meant = _meant(where, beside, [*keys_of(model)], value)
    if meant:
        return f" (did you mean {' or '.join(f'`{each}`' for each in meant)}?)"
    return f"; known here: {', '.join(beside)}" if beside else ""


def _meant(where: str, beside: Sequence[str], everywhere: Sequence[str], value: object) -> list[str]:
    """Return the keys that an unknown one may stand for: a neighbour's name misspelt, else a key of another section."""
    section, _, name = where.rpartition(".")
    before = f"{section}." if section else ""
    if near := _alike(name, {each: f"{before}{each}" for each in beside}):
        return near
    by_leaf: dict[str, list[str]] = {}
    for key in everywhere:
        by_leaf.setdefault(key.rpartition(".")[2], []).append(key)
    for leaf in (name, *_leaves(value)):
        if found := by_leaf.get(leaf) or _alike(leaf, {leaf: keys[0] for leaf, keys in by_leaf.items()}):
            return found[:_SUGGESTED]
        parts = [each for each in by_leaf if _holds(leaf, each)]
        if parts:
            return by_leaf[max(parts, key=len)][:_SUGGESTED]
    return []


def _holds(name: str, leaf: str) -> bool:
    return len(leaf) >= _SHORTEST_PART and leaf in name


def _alike(name: str, known: Mapping[str, str]) -> list[str]:
    """Return those of ``known`` whose name is nearly this one, as they are called in full."""
    lower = {each.lower(): full for each, full in known.items()}
    if name.lower() in lower:
        return [lower[name.lower()]]
    return [lower[each] for each in difflib.get_close_matches(name.lower(), lower, _SUGGESTED, _ALIKE)]


def _leaves(value: object) -> Iterator[str]:
    """Yield the names within an unknown section, which may be known where they belong."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner) if isinstance(inner, Mapping) else (str(name),)


def shown(value: object) -> str:
    """Return a value as a person writes it."""
    if value is None:
        return "empty"
    nested = isinstance(value, Mapping | list | tuple | bool)
    text = json.dumps(value, default=str, skipkeys=True) if nested else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a number below 2^63",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "keys below it",
    "model_type": "keys below it",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_short": "at least {min_length} in it",
    "too_long": "at most {max_length} in it",
}
"""What a person reads of pydantic's errors, by their type."""


def _expected(error: ErrorDetails) -> str:
    known = _EXPECTED.get(error["type"])
    said = error["msg"] if known is None else known.format(**error.get("ctx", {}))
    return f"{said}: write {number}" if (number := _as_digits(error)) else said


def _as_digits(error: ErrorDetails) -> str:
    """Return a whole number that was written as text, as 1e6, in digits; empty if it is none."""
    try:
        number = float(error["input"]) if error["type"] == "int_parsing" else 0.5
    except ValueError:
        return ""
    return str(int(number)) if number.is_integer() else ""
