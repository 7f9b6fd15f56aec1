"""The blueprint library: what can be spawned, one row a blueprint.

Owns ids, tags, attributes and the vehicles' figures. A new vehicle is one more row of ``_VEHICLES``; a sensor
brings its own row to ``register`` (``sensors``). Never touches a world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

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

    def describe(self) -> list[Any]:
        """Return the ActorAttribute struct."""
        return [self.id, int(self.type), self.value, list(self.recommended), self.modifiable, False]


@dataclass(frozen=True)
class Blueprint:
    """What can be spawned, or, like the spectator, is there from the start."""

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
    color: str = "128,128,128"


CATALOGUE: dict[str, Blueprint] = {}
"""All blueprints by id."""


def register(blueprint: Blueprint) -> None:
    """Add a blueprint to the catalogue; its uid is its place there."""
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


_CAR, _TRUCK, _BUS = 14, 15, 16
_ROLES = ("autopilot", "scenario", "ego_vehicle", "hero")

# id after "vehicle.", base type, generation, half length, width and height of CARLA's bounding box (m), mass (kg),
# special type, colours.
_VEHICLES: tuple[tuple[str, str, int, tuple[float, float, float], float, str, tuple[str, ...]], ...] = (
    ("tesla.model3", "car", 1, MODEL3.extent, MODEL3.mass_kg, "electric", ("17,37,103", "180,44,44", "75,87,173")),
    ("audi.a2", "car", 1, (1.853, 0.895, 0.774), 1030.0, "", ("173,44,53", "90,143,180", "181,181,173")),
    ("audi.tt", "car", 1, (2.091, 0.997, 0.692), 1410.0, "", ("160,16,16", "28,44,72", "200,200,200")),
    ("bmw.grandtourer", "car", 1, (2.306, 1.121, 0.834), 1505.0, "", ("35,48,79", "92,92,92", "166,139,76")),
    ("citroen.c3", "car", 1, (1.994, 0.925, 0.808), 1050.0, "", ("194,92,60", "65,107,74", "181,181,181")),
    ("lincoln.mkz_2020", "car", 2, (2.446, 0.918, 0.745), 1760.0, "", ("24,24,24", "120,20,28", "210,210,210")),
    ("mini.cooper_s", "car", 1, (1.903, 0.985, 0.737), 1170.0, "", ("160,30,30", "38,74,56", "220,200,120")),
    ("nissan.patrol", "car", 1, (2.302, 0.966, 0.927), 2750.0, "", ("68,76,92", "140,132,116", "30,60,50")),
    ("toyota.prius", "car", 1, (2.257, 1.003, 0.762), 1400.0, "electric", ("170,176,180", "40,84,140", "96,24,32")),
    ("volkswagen.t2", "van", 1, (2.240, 1.035, 1.019), 1300.0, "", ("200,120,50", "70,130,140", "220,215,200")),
    ("carlamotors.firetruck", "truck", 2, (4.234, 1.446, 1.914), 9000.0, "emergency", ("150,20,20",)),
)

_TAGS = {"car": _CAR, "van": _CAR, "truck": _TRUCK, "bus": _BUS}


def _scaled(extent: tuple[float, float, float], mass_kg: float) -> VehicleModel:
    """Return MODEL3 at another size and mass: axles scale with the length, forces with the mass."""
    length, mass = extent[0] / MODEL3.half_length_m, mass_kg / MODEL3.mass_kg
    return replace(
        MODEL3,
        mass_kg=mass_kg,
        yaw_inertia_kgm2=MODEL3.yaw_inertia_kgm2 * mass * length**2,
        front_axle_m=MODEL3.front_axle_m * length,
        rear_axle_m=MODEL3.rear_axle_m * length,
        half_length_m=extent[0],
        half_width_m=extent[1],
        half_height_m=extent[2],
        box_centre_z_m=extent[2],
        peak_torque_nm=MODEL3.peak_torque_nm * mass,
        peak_power_w=MODEL3.peak_power_w * mass,
        brake_force_n=MODEL3.brake_force_n * mass,
        hand_brake_force_n=MODEL3.hand_brake_force_n * mass,
        front_stiffness_n_per_rad=MODEL3.front_stiffness_n_per_rad * mass,
        rear_stiffness_n_per_rad=MODEL3.rear_stiffness_n_per_rad * mass,
    )


def _vehicle_attributes(base: str, generation: int, special: str, colors: tuple[str, ...]) -> tuple[Attribute, ...]:
    return (
        Attribute("number_of_wheels", Kind.INT, "4", modifiable=False),
        Attribute("base_type", Kind.STRING, base, modifiable=False),
        Attribute("special_type", Kind.STRING, special, modifiable=False),
        Attribute("generation", Kind.INT, str(generation), modifiable=False),
        Attribute("object_type", Kind.STRING, "", modifiable=False),
        Attribute("has_lights", Kind.BOOL, "true", modifiable=False),
        Attribute("color", Kind.COLOR, colors[0], colors),
        Attribute("driver_id", Kind.INT, "0"),
        Attribute("sticky_control", Kind.BOOL, "true"),
        role(*_ROLES),
    )


register(Blueprint("spectator"))
for _name, _base, _generation, _extent, _mass, _special, _colors in _VEHICLES:
    _attributes = _vehicle_attributes(_base, _generation, _special, _colors)
    _model = MODEL3 if _name == "tesla.model3" else _scaled(_extent, _mass)
    register(VehicleBlueprint(f"vehicle.{_name}", _attributes, (_TAGS[_base],), model=_model, color=_colors[0]))
