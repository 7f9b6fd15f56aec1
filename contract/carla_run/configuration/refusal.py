"""Explains a value that doesn't fit its model in one clause for users, instead of pydantic's messages.

Knows no particular model.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from carla_run import keys
from carla_run.configuration.section import keys_of, members, model_in

_KEY = "[key]"  # pydantic's word, at the end of a place, for a wrong key of a dictionary


def clause(error: ValidationError, model: type[BaseModel], complete: str = "the example") -> str:
    """Return the first error without a full stop: the key, its value, what was expected.

    Args:
        error: error of validating ``model``.
        model: the model, with its keys.
        complete: name of an example with every required key.
    """
    errors, first = error.errors(), _first(error)
    where, beside = _place(model, first["loc"])
    if _is_of_a_key(first):
        return keys.unknown(where, beside, [*keys_of(model)], first["input"])
    if first["type"] == "missing":
        if isinstance(first["loc"][-1], int):
            return f"`{where.rpartition('.')[0]}` has too few values"
        return f"`{where}` is missing; {complete} has it"
    if first["type"] in ("value_error", "assertion_error"):
        said = str(first["msg"]).partition(", ")[2]
        return said if where in said else f"`{where}`: {said}"
    expected = [_expected(each) for each in errors if _place(model, each["loc"])[0] == where]  # a union has several
    return keys.invalid_value(where, first["input"], " or ".join(dict.fromkeys(expected)))


def key(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the dotted key of the first error; empty if it is about the whole model."""
    return _place(model, _first(error)["loc"])[0]


def _first(error: ValidationError) -> ErrorDetails:
    errors = error.errors()
    return next((each for each in errors if _is_of_a_key(each)), errors[0])


def _is_of_a_key(error: ErrorDetails) -> bool:
    return error["type"] in ("extra_forbidden", "invalid_key") or _KEY in error["loc"]


def _place(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, list[str]]:
    """Return the dotted key of a location, without pydantic's type names, and the keys in the same section."""
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
    """Return the keys that a dictionary can have, if its key type lists them."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(each.value) for each in annotation]
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


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
    "string_too_short": "text that isn't empty",
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
"""Descriptions of expected values, by the type of pydantic's error."""


def _expected(error: ErrorDetails) -> str:
    known = _EXPECTED.get(error["type"])
    said = error["msg"] if known is None else known.format(**error.get("ctx", {}))
    return f"{said}: write {number}" if (number := _as_digits(error)) else said


def _as_digits(error: ErrorDetails) -> str:
    """Return a whole number that was written as 1e6, in digits; empty if it is none."""
    try:
        number = float(error["input"]) if error["type"] == "int_parsing" else 0.5
    except ValueError:
        return ""
    return str(int(number)) if number.is_integer() else ""
