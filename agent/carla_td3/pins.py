"""What a configuration's value settles for longer than one process: said at its field, read here for each comparison.

A field of a section is marked by ``Annotated[…, Pin.WEIGHTS]``; a section that is marked is one key, whole. Owns the
marks and how they are read. Knows no field.
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
    """What fits only the value that it was made with."""

    ROWS = auto()
    """The numbers of a replay's rows."""
    WEIGHTS = auto()
    """What a checkpoint holds."""
    MEMORY = auto()
    """A measured peak: it says nothing about another value."""
    SIZE = auto()
    """An estimate, which can tell by how much another value changes it; or what the launcher watches by."""


@dataclass(frozen=True)
class Before:
    """What a checkpoint that lacks the key was trained with: it is older, or leaves this value out."""

    value: Any


def pinned(config: Section, pin: Pin) -> dict[str, Any]:
    """Return the values of the keys that have one of these marks, by dotted name, as plain data for JSON."""
    plain = config.model_dump(mode="json")
    return {key: at(plain, key) for key, _ in _marked(type(config), pin)}


def before(model: type[Section]) -> dict[str, Any]:
    """Return what the absence of a key means, by dotted name, where a checkpoint may lack it."""
    marked = _marked(model, Pin.WEIGHTS)
    return {key: mark.value for key, field in marked for mark in field.metadata if isinstance(mark, Before)}


def _marked(model: type[BaseModel], pin: Pin, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        section = model_in(field.annotation)
        if any(isinstance(mark, Pin) and pin & mark for mark in field.metadata):
            yield f"{prefix}{name}", field
        elif section is not None:
            yield from _marked(section, pin, f"{prefix}{name}.")
