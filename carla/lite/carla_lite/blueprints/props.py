"""The props of CARLA 0.9.16 (``static.prop.*``): things that programs place on streets.

Owns the rows: name, size, colour, and the shape that fills the box. The ids are those of CARLA's catalogue of props; it
publishes no sizes, so these are usual ones, to about a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass

from carla_lite.blueprints.blueprint import Attribute, Blueprint, Kind, floats, read_only, role, unused
from carla_lite.scenery import prop_meshes as look
from carla_lite.scenery.vehicle_meshes import BGR

_DYNAMIC = 21  # CityObjectLabel of movable things
_WOOD, _STEEL, _DARK, _WHITE = (70, 110, 150), (150, 146, 140), (56, 58, 60), (214, 216, 218)
_ORANGE, _RED, _GREEN, _BLUE, _CARD = (30, 110, 235), (50, 50, 190), (70, 120, 60), (150, 100, 50), (110, 150, 180)
_CLAY, _STONE, _YELLOW = (80, 110, 170), (160, 164, 168), (60, 200, 230)


@dataclass(frozen=True)
class PropBlueprint(Blueprint):
    """Blueprint of a prop; its origin is the centre of its underside."""

    size_m: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Length, width and height."""
    colour: BGR = _STEEL
    shape: look.Shape = look.box

    @property
    def mass_kg(self) -> float:
        """Mass of a mostly hollow thing."""
        length, width, height = self.size_m
        return max(0.5, 60.0 * length * width * height)


# Names, then length, width and height (m), colour and shape.
_ROWS: tuple[tuple[str, float, float, float, BGR, look.Shape], ...] = (
    ("advertisement", 0.35, 1.45, 2.7, _DARK, look.machine),
    ("atm", 0.8, 0.9, 1.9, _BLUE, look.machine),
    ("barbeque", 0.6, 1.1, 1.1, _DARK, look.box),
    ("barrel", 0.6, 0.6, 0.9, _BLUE, look.barrel),
    ("bench01 bench02 bench03", 0.6, 1.6, 0.85, _WOOD, look.bench),
    ("bike_helmet motorhelmet", 0.3, 0.25, 0.25, _RED, look.box),
    ("bikeparking", 0.6, 2.2, 0.8, _STEEL, look.box),
    ("bin", 0.5, 0.5, 1.0, _GREEN, look.dustbin),
    ("box01 box02 box03", 0.5, 0.5, 0.5, _CARD, look.box),
    ("briefcase guitarcase", 0.15, 0.5, 0.4, _DARK, look.box),
    ("brokentile01 brokentile02 brokentile03 brokentile04", 0.4, 0.4, 0.03, _STONE, look.box),
    ("busstop busstoplb", 1.6, 4.2, 2.6, _STEEL, look.shelter),
    ("calibrator", 0.1, 1.0, 1.5, _WHITE, look.box),
    ("chainbarrier chainbarrierend", 0.2, 1.6, 1.0, _YELLOW, look.barrier),
    ("clothcontainer", 1.1, 1.1, 1.9, _GREEN, look.container),
    ("clothesline", 1.8, 1.8, 1.8, _STEEL, look.box),
    ("colacan", 0.07, 0.07, 0.12, _RED, look.barrel),
    ("constructioncone trafficcone01 trafficcone02", 0.4, 0.4, 0.75, _ORANGE, look.cone),
    ("container", 1.1, 1.9, 1.5, _GREEN, look.container),
    ("creasedbox01 creasedbox02 creasedbox03", 0.5, 0.5, 0.3, _CARD, look.box),
    ("dirtdebris01 dirtdebris02 dirtdebris03", 1.2, 1.2, 0.05, _CLAY, look.box),
    ("doghouse", 1.1, 0.8, 0.9, _WOOD, look.box),
    ("foodcart", 2.0, 3.2, 2.6, _YELLOW, look.box),
    ("fountain", 4.0, 4.0, 2.5, _STONE, look.fountain),
    ("garbage01 garbage02 garbage03 garbage04 garbage05 garbage06", 0.5, 0.5, 0.15, _DARK, look.box),
    ("gardenlamp", 0.2, 0.2, 0.6, _DARK, look.barrel),
    ("glasscontainer", 1.4, 1.4, 1.7, _GREEN, look.container),
    ("gnome", 0.2, 0.2, 0.4, _RED, look.box),
    ("haybale haybalelb", 1.3, 1.5, 1.3, _YELLOW, look.box),
    ("ironplank", 1.5, 2.5, 0.04, _STEEL, look.box),
    ("kiosk_01", 2.2, 2.6, 2.7, _GREEN, look.machine),
    ("mailbox", 0.5, 0.5, 1.3, _YELLOW, look.machine),
    ("maptable", 0.4, 1.2, 1.4, _WOOD, look.sign),
    ("mobile", 0.08, 0.15, 0.02, _DARK, look.box),
    ("pergola", 3.0, 3.0, 2.5, _WOOD, look.shelter),
    ("plantpot01 plantpot02 plantpot03 plantpot04 plantpot05 plantpot06", 0.5, 0.5, 0.9, _CLAY, look.pot),
    ("plantpot07 plantpot08", 0.5, 0.5, 0.9, _CLAY, look.pot),
    ("plasticbag shoppingbag", 0.2, 0.35, 0.4, _WHITE, look.bag),
    ("plasticchair", 0.55, 0.55, 0.85, _WHITE, look.chair),
    ("plastictable", 0.9, 0.9, 0.72, _WHITE, look.table),
    ("platformgarbage01", 1.2, 1.6, 0.6, _DARK, look.box),
    ("purse", 0.15, 0.3, 0.25, _CLAY, look.box),
    ("shop01", 3.0, 4.0, 2.9, _BLUE, look.machine),
    ("shoppingcart shoppingtrolley", 0.95, 0.55, 1.0, _STEEL, look.box),
    ("slide", 3.0, 0.9, 2.0, _RED, look.box),
    ("streetbarrier", 0.5, 1.3, 1.0, _ORANGE, look.barrier),
    ("streetfountain", 0.5, 0.5, 1.2, _DARK, look.fountain),
    ("streetsign streetsign01 streetsign04", 0.1, 0.7, 2.4, _BLUE, look.sign),
    ("swing swingcouch", 1.6, 2.4, 2.1, _WOOD, look.shelter),
    ("table", 0.8, 1.4, 0.75, _WOOD, look.table),
    ("trafficwarning", 1.2, 2.0, 3.0, _ORANGE, look.board),
    ("trampoline", 3.0, 3.0, 0.9, _DARK, look.table),
    ("trashbag", 0.5, 0.5, 0.6, _DARK, look.bag),
    ("trashcan01 trashcan02 trashcan03 trashcan04 trashcan05", 0.6, 0.6, 1.1, _GREEN, look.dustbin),
    ("travelcase", 0.3, 0.5, 0.7, _BLUE, look.box),
    ("vendingmachine", 0.9, 1.1, 2.0, _RED, look.machine),
    ("warningaccident warningconstruction", 0.5, 0.9, 1.0, _RED, look.warning),
    ("wateringcan", 0.2, 0.4, 0.35, _GREEN, look.box),
)


def _size_word(length_m: float, width_m: float, height_m: float) -> str:
    """Return CARLA's word for a size (EPropSize; CARLA's limits aren't published, so these are ours)."""
    longest = max(length_m, width_m, height_m)
    return "tiny" if longest < 0.3 else "small" if longest < 0.7 else "medium" if longest < 1.7 else "big"


# It shows a mesh of CARLA's content, which isn't here. It spawns, as CARLA spawns it for an unknown path.
MESH = "static.prop.mesh"
_MESH_ATTRIBUTES = (
    role("prop"),
    *unused("no mesh is shown", Attribute("mesh_path", Kind.STRING, ""), *floats(mass="0.0", scale="1.0")),
)
PROPS: list[Blueprint] = [
    PropBlueprint(
        f"static.prop.{name}",
        (role("prop"), read_only("size", _size_word(*size_m))),
        (_DYNAMIC,),
        size_m=(size_m[0], size_m[1], size_m[2]),
        colour=colour,
        shape=shape,
    )
    for names, *size_m, colour, shape in _ROWS
    for name in names.split()
]
PROPS.append(Blueprint(MESH, _MESH_ATTRIBUTES, (_DYNAMIC,)))
