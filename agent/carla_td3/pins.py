"""Marks for configuration values that something stored depends on: a replay, a checkpoint, a measurement.

A field of a section is marked by ``Annotated[…, Pin.WEIGHTS]``; a marked section is one key. Owns the marks and their
reading. Knows no field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from carla_run.configuration.section import Section, model_in
from carla_run.keys import at


class Pin(Flag):
    """Stored things that a change of the value would make unusable."""

    ROWS = auto()
    """The rows of a replay."""
    WEIGHTS = auto()
    """The contents of a checkpoint."""
    MEMORY = auto()
    """A measured peak of memory."""
    SIZE = auto()
    """An estimate, which can compute the effect of another value; or the launcher's monitoring."""


@dataclass(frozen=True)
class LegacyValue:
    """The value that a checkpoint without this key was trained with: it is older, or omits this value."""

    value: Any


def pinned(config: Section, pin: Pin) -> dict[str, Any]:
    """Return the values of the keys with one of these marks, by dotted name, as plain data for JSON."""
    plain = config.model_dump(mode="json")
    return {key: at(plain, key) for key, _ in _marked(type(config), pin)}


def legacy_values(model: type[Section]) -> dict[str, Any]:
    """Return the value that the absence of a key means, by dotted name, for keys that a checkpoint may lack."""
    marked = _marked(model, Pin.WEIGHTS)
    return {key: mark.value for key, field in marked for mark in field.metadata if isinstance(mark, LegacyValue)}


def _marked(model: type[BaseModel], pin: Pin, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        section = model_in(field.annotation)
        if any(isinstance(mark, Pin) and pin & mark for mark in field.metadata):
            yield f"{prefix}{name}", field
        elif section is not None:
            yield from _marked(section, pin, f"{prefix}{name}.")
