"""The base class of all configuration models, and functions on the keys of a model.

Checks every value of every model: numbers are finite, and `true` is no number. Knows no particular model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from carla_run.records import LARGEST

MOST_EXIT_CODE = 255
"""Highest exit code of a process."""


class Section(BaseModel):
    """Unknown keys are errors, values are frozen, numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_a_number_where_one_is_expected(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `true`, which pydantic reads as 1, and whole numbers beyond 2^63."""
        types = set(_leaves(cls.model_fields[str(info.field_name)].annotation))
        whole = [each for each in _values(value) if isinstance(each, int)] if types & {int, float} else []
        if bool not in types and any(isinstance(each, bool) for each in whole):
            raise PydanticCustomError("bool_for_number", "a number")
        if any(abs(each) > LARGEST for each in whole):
            raise PydanticCustomError("too_large", "a number below 2^63")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _is_a_path_as_in_a_shell(cls, value: object, info: ValidationInfo) -> object:
        """Read `~` at the beginning of a path as the user's home. Refuse an empty one: it would be the folder."""
        is_path = Path in set(_leaves(cls.model_fields[str(info.field_name)].annotation))
        if not is_path or not isinstance(value, str | Path):
            return value
        if value == "":
            raise PydanticCustomError("empty_path", "a path")
        return os.path.expanduser(value)  # noqa: PTH111 (pathlib's raises for ~nobody)


def refuse_odd_variable(name: str) -> None:
    """Refuse what can't be the name of an environment variable, in a model's validator.

    Raises:
        ValueError: it can't be.
    """
    if not name or "=" in name:
        raise ValueError(f"{name!r} can't be the name of an environment variable; expected text without =")


def _values(value: object) -> list[object]:
    if isinstance(value, Mapping):
        value = list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the types that a field's values can have, without those inside a model."""
    inner = get_args(annotation)
    if inner:
        for each in inner:
            yield from _leaves(each)
    else:
        yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def keys_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the type of every key by its dotted name: sections and their keys."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        found[name] = field.annotation
        if (section := model_in(field.annotation)) is not None:
            found |= {f"{name}.{key}": annotation for key, annotation in keys_of(section).items()}
    return found


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or a type itself, without its annotations for pydantic."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that is a field's type, or a part of a union; None if there is none."""
    return next((each for each in members(annotation) if _is_model(each)), None)
