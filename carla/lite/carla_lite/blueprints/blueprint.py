"""What a blueprint is: an id with attributes that a client reads and sets."""

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
    """One attribute of a blueprint; ``recommended`` are the values that CARLA's own scripts choose from."""

    id: str
    type: int  # a Kind; 0.9.15's client counts from 0
    value: str
    recommended: tuple[str, ...] = ()
    modifiable: bool = True
    restricted: bool = False
    """Whether the client refuses what isn't recommended."""
    unused: str = ""
    """Why it changes nothing when a client sets it; empty if it does what it does in CARLA."""

    def describe(self) -> list[Any]:
        """Return the ActorAttribute struct; as in CARLA, what can be modified always recommends something."""
        recommended = list(self.recommended or ([self.value] if self.modifiable else []))
        return [self.id, int(self.type), self.value, recommended, self.modifiable, self.restricted]


@dataclass(frozen=True)
class Blueprint:
    """What an actor is made from."""

    id: str
    attributes: tuple[Attribute, ...] = ()
    semantic_tags: tuple[int, ...] = ()
    uid: int = field(default=0, compare=False)

    def describe(self) -> list[Any]:
        """Return the ActorDefinition struct; the tags are the parts of the id, as in CARLA."""
        tags = ",".join(self.id.split("."))
        return [self.uid, self.id, tags, [attribute.describe() for attribute in self.attributes]]

    def numbered(self, first: int) -> Blueprint:
        """Return it with the types of its attributes numbered from ``first``."""
        if first == Kind.BOOL:
            return self
        return replace(self, attributes=tuple(replace(one, type=one.type - 1 + first) for one in self.attributes))

    def values(self, given: dict[str, str]) -> dict[str, str]:
        """Return the attributes' values, ``given`` over the defaults; unknown names are dropped."""
        return {a.id: given.get(a.id, a.value) if a.modifiable else a.value for a in self.attributes}


def unused(why: str, *attributes: Attribute) -> tuple[Attribute, ...]:
    """Return attributes that are accepted, so that scripts which set them run, and that change nothing."""
    return tuple(replace(attribute, unused=why) for attribute in attributes)


def role(*recommended: str) -> Attribute:
    """Return the attribute that every actor has for its user's own marks."""
    return Attribute("role_name", Kind.STRING, recommended[0] if recommended else "default", recommended)


def told(name: str, value: object) -> Attribute:
    """Return an attribute that clients can read and not set; numbers are whole."""
    if isinstance(value, bool):
        return Attribute(name, Kind.BOOL, str(value).lower(), modifiable=False)
    return Attribute(name, Kind.INT if isinstance(value, int) else Kind.STRING, str(value), modifiable=False)


def floats(**defaults: str) -> tuple[Attribute, ...]:
    """Return numeric attributes with these defaults."""
    return tuple(Attribute(name, Kind.FLOAT, value) for name, value in defaults.items())


def integers(**defaults: str) -> tuple[Attribute, ...]:
    """Return whole-number attributes with these defaults."""
    return tuple(Attribute(name, Kind.INT, value) for name, value in defaults.items())
