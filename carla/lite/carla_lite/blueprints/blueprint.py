"""Blueprints: an id with attributes that clients read and set."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any


class Kind(IntEnum):
    """Attribute types, as numbered on the wire (protocol, section 2.3)."""

    BOOL = 1
    INT = 2
    FLOAT = 3
    STRING = 4
    COLOR = 5


@dataclass(frozen=True)
class Attribute:
    """One attribute of a blueprint; ``recommended`` are the values from which CARLA's scripts choose."""

    id: str
    type: int  # a Kind; 0.9.15's client counts from 0
    value: str
    recommended: tuple[str, ...] = ()
    modifiable: bool = True
    restricted: bool = False
    """Whether the client refuses values that aren't recommended."""
    unused: str = ""
    """Why setting it has no effect; empty if it has its effect in CARLA."""

    def describe(self) -> list[Any]:
        """Return the ActorAttribute struct. As in CARLA, a modifiable attribute always recommends a value."""
        recommended = list(self.recommended or ([self.value] if self.modifiable else []))
        return [self.id, int(self.type), self.value, recommended, self.modifiable, self.restricted]


@dataclass(frozen=True)
class Blueprint:
    """A blueprint, from which actors are spawned."""

    id: str
    attributes: tuple[Attribute, ...] = ()
    semantic_tags: tuple[int, ...] = ()
    uid: int = field(default=0, compare=False)

    def describe(self) -> list[Any]:
        """Return the ActorDefinition struct; the tags are the parts of the id, as in CARLA."""
        tags = ",".join(self.id.split("."))
        return [self.uid, self.id, tags, [attribute.describe() for attribute in self.attributes]]

    def numbered(self, first: int) -> Blueprint:
        """Return the blueprint with its attribute types numbered from ``first``."""
        if first == Kind.BOOL:
            return self
        return replace(self, attributes=tuple(replace(one, type=one.type - 1 + first) for one in self.attributes))

    def values(self, given: dict[str, str]) -> dict[str, str]:
        """Return the attributes' values: ``given``, else the defaults; unknown names are dropped."""
        return {a.id: given.get(a.id, a.value) if a.modifiable else a.value for a in self.attributes}


def unused(why: str, *attributes: Attribute) -> tuple[Attribute, ...]:
    """Return attributes that are accepted without effect, so that scripts that set them run."""
    return tuple(replace(attribute, unused=why) for attribute in attributes)


def role(*recommended: str) -> Attribute:
    """Return the attribute ``role_name``, which every actor has for its user's marks."""
    return Attribute("role_name", Kind.STRING, recommended[0] if recommended else "default", recommended)


def read_only(name: str, value: object) -> Attribute:
    """Return an attribute that clients can read but not set; its numbers are whole."""
    if isinstance(value, bool):
        return Attribute(name, Kind.BOOL, str(value).lower(), modifiable=False)
    return Attribute(name, Kind.INT if isinstance(value, int) else Kind.STRING, str(value), modifiable=False)


def floats(**defaults: str) -> tuple[Attribute, ...]:
    """Return numeric attributes with these defaults."""
    return tuple(Attribute(name, Kind.FLOAT, value) for name, value in defaults.items())


def integers(**defaults: str) -> tuple[Attribute, ...]:
    """Return whole-number attributes with these defaults."""
    return tuple(Attribute(name, Kind.INT, value) for name, value in defaults.items())
