"""The blueprint library: what can be spawned, one row a blueprint.

Owns ids, tags and attributes. A new vehicle is one more row of ``vehicle_blueprints``; a sensor brings its own row to
``register`` (``sensors``). Never touches a world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from carla_lite.blueprints.vehicles import VEHICLES, BaseType, VehicleRow, model_of
from carla_lite.motion.vehicles import MODEL3, VehicleModel
from carla_lite.protocol.wire import RpcError


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
    type: Kind
    value: str
    recommended: tuple[str, ...] = ()
    modifiable: bool = True
    restricted: bool = False
    """Whether the client refuses what isn't recommended."""

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

    def values(self, given: dict[str, str]) -> dict[str, str]:
        """Return the attributes' values, ``given`` over the defaults; unknown names are dropped."""
        return {a.id: given.get(a.id, a.value) if a.modifiable else a.value for a in self.attributes}


@dataclass(frozen=True)
class VehicleBlueprint(Blueprint):
    """A blueprint with a body."""

    model: VehicleModel = MODEL3
    base_type: BaseType = BaseType.CAR
    told_m: tuple[float, float, float] | None = None
    """Length, width and height of the box that clients are told, if not the body's."""


SPECTATOR = Blueprint("spectator")
"""Of the actor that is there from the start; not in the catalogue, as in CARLA's."""

CATALOGUE: dict[str, Blueprint] = {}
"""All blueprints by id."""


def register(blueprint: Blueprint) -> None:
    """Add a blueprint to the catalogue; its uid is its place there.

    Raises:
        ValueError: there is another one of that id.
    """
    if blueprint.id in CATALOGUE:
        raise ValueError(f"blueprint {blueprint.id} is in the catalogue already: give one of the two another id.")
    CATALOGUE[blueprint.id] = replace(blueprint, uid=len(CATALOGUE) + 1)


def find(name: str) -> Blueprint:
    """Return the blueprint of this id.

    Raises:
        RpcError: there is none.
    """
    if name not in CATALOGUE:
        raise RpcError(f"blueprint {name} is unknown here; get_blueprint_library() lists what exists")
    return CATALOGUE[name]


def role(*recommended: str) -> Attribute:
    """Return the attribute that every actor has for its user's own marks."""
    return Attribute("role_name", Kind.STRING, recommended[0] if recommended else "default", recommended)


_SEMANTIC_TAGS = {
    BaseType.CAR: 14,
    BaseType.VAN: 14,
    BaseType.TRUCK: 15,
    BaseType.BUS: 16,
    BaseType.MOTORCYCLE: 18,
    BaseType.BICYCLE: 19,
}
# CARLA doesn't publish which of its figures sit where: these numbers only choose among the same rider.
_DRIVERS = tuple(str(number) for number in range(1, 8))


def _vehicle(row: VehicleRow) -> VehicleBlueprint:
    """Return the blueprint of a row, with CARLA's attributes (ActorBlueprintFunctionLibrary.cpp).

    An attribute that a vehicle doesn't have is left out: scripts choose at random from what is recommended, and an
    empty list ends them.
    """
    attributes = [role("autopilot", "scenario", "ego_vehicle")]
    if row.colors:
        attributes.append(Attribute("color", Kind.COLOR, row.colors[0], row.colors))
    if row.base_type.has_driver:
        attributes.append(Attribute("driver_id", Kind.INT, _DRIVERS[0], _DRIVERS, restricted=True))
    attributes += [
        Attribute("sticky_control", Kind.BOOL, "true"),
        Attribute("terramechanics", Kind.BOOL, "false"),
        Attribute("object_type", Kind.STRING, "", modifiable=False),
        Attribute("base_type", Kind.STRING, row.base_type.value, modifiable=False),
        Attribute("special_type", Kind.STRING, row.special_type, modifiable=False),
        Attribute("number_of_wheels", Kind.INT, str(row.wheels), modifiable=False),
        Attribute("generation", Kind.INT, str(row.generation), modifiable=False),
        Attribute("has_dynamic_doors", Kind.BOOL, str(row.doors).lower(), modifiable=False),
        Attribute("has_lights", Kind.BOOL, str(row.lights).lower(), modifiable=False),
    ]
    tags = (_SEMANTIC_TAGS[row.base_type],)
    name, model = f"vehicle.{row.id}", model_of(row)
    return VehicleBlueprint(name, tuple(attributes), tags, model=model, base_type=row.base_type, told_m=row.told_m)


for _row in VEHICLES:
    register(_vehicle(_row))
