"""The props of CARLA 0.9.16 (``static.prop.*``): things that programs set down on streets, as boxes.

Owns the rows: name, size and what colour the box is. The ids are those of CARLA's catalogue of props; it publishes no
measures, so sizes are those of the usual thing, to about a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass

from carla_lite.blueprints.catalogue import Attribute, Blueprint, Kind, register, role
from carla_lite.blueprints.sensor_attributes import floats
from carla_lite.scenery.vehicle_meshes import BGR

_DYNAMIC = 21  # CityObjectLabel of things that may be moved
_WOOD, _STEEL, _DARK, _WHITE = (70, 110, 150), (150, 146, 140), (56, 58, 60), (214, 216, 218)
_ORANGE, _RED, _GREEN, _BLUE, _CARD = (30, 110, 235), (50, 50, 190), (70, 120, 60), (150, 100, 50), (110, 150, 180)
_CLAY, _STONE, _YELLOW = (80, 110, 170), (160, 164, 168), (60, 200, 230)


@dataclass(frozen=True)
class PropBlueprint(Blueprint):
    """A blueprint of a thing; its origin is in the middle of its underside."""

    size_m: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Length, width and height."""
    colour: BGR = _STEEL

    @property
    def mass_kg(self) -> float:
        """As of things that are mostly hollow."""
        length, width, height = self.size_m
        return max(0.5, 60.0 * length * width * height)


# Names, then length, width and height (m) and colour.
_ROWS: tuple[tuple[str, float, float, float, BGR], ...] = (
    ("advertisement", 0.35, 1.45, 2.7, _DARK),
    ("atm", 0.8, 0.9, 1.9, _BLUE),
    ("barbeque", 0.6, 1.1, 1.1, _DARK),
    ("barrel", 0.6, 0.6, 0.9, _BLUE),
    ("bench01 bench02 bench03", 0.6, 1.6, 0.85, _WOOD),
    ("bike_helmet motorhelmet", 0.3, 0.25, 0.25, _RED),
    ("bikeparking", 0.6, 2.2, 0.8, _STEEL),
    ("bin", 0.5, 0.5, 1.0, _GREEN),
    ("box01 box02 box03", 0.5, 0.5, 0.5, _CARD),
    ("briefcase guitarcase", 0.15, 0.5, 0.4, _DARK),
    ("brokentile01 brokentile02 brokentile03 brokentile04", 0.4, 0.4, 0.03, _STONE),
    ("busstop busstoplb", 1.6, 4.2, 2.6, _STEEL),
    ("calibrator", 0.1, 1.0, 1.5, _WHITE),
    ("chainbarrier chainbarrierend", 0.2, 1.6, 1.0, _YELLOW),
    ("clothcontainer", 1.1, 1.1, 1.9, _GREEN),
    ("clothesline", 1.8, 1.8, 1.8, _STEEL),
    ("colacan", 0.07, 0.07, 0.12, _RED),
    ("constructioncone trafficcone01 trafficcone02", 0.4, 0.4, 0.75, _ORANGE),
    ("container", 1.1, 1.9, 1.5, _GREEN),
    ("creasedbox01 creasedbox02 creasedbox03", 0.5, 0.5, 0.3, _CARD),
    ("dirtdebris01 dirtdebris02 dirtdebris03", 1.2, 1.2, 0.05, _CLAY),
    ("doghouse", 1.1, 0.8, 0.9, _WOOD),
    ("foodcart", 2.0, 3.2, 2.6, _YELLOW),
    ("fountain", 4.0, 4.0, 2.5, _STONE),
    ("garbage01 garbage02 garbage03 garbage04 garbage05 garbage06", 0.5, 0.5, 0.15, _DARK),
    ("gardenlamp", 0.2, 0.2, 0.6, _DARK),
    ("glasscontainer", 1.4, 1.4, 1.7, _GREEN),
    ("gnome", 0.2, 0.2, 0.4, _RED),
    ("haybale haybalelb", 1.3, 1.5, 1.3, _YELLOW),
    ("ironplank", 1.5, 2.5, 0.04, _STEEL),
    ("kiosk_01", 2.2, 2.6, 2.7, _GREEN),
    ("mailbox", 0.5, 0.5, 1.3, _YELLOW),
    ("maptable", 0.4, 1.2, 1.4, _WOOD),
    ("mobile", 0.08, 0.15, 0.02, _DARK),
    ("pergola", 3.0, 3.0, 2.5, _WOOD),
    ("plantpot01 plantpot02 plantpot03 plantpot04 plantpot05 plantpot06 plantpot07 plantpot08", 0.5, 0.5, 0.9, _CLAY),
    ("plasticbag shoppingbag", 0.2, 0.35, 0.4, _WHITE),
    ("plasticchair", 0.55, 0.55, 0.85, _WHITE),
    ("plastictable", 0.9, 0.9, 0.72, _WHITE),
    ("platformgarbage01", 1.2, 1.6, 0.6, _DARK),
    ("purse", 0.15, 0.3, 0.25, _CLAY),
    ("shop01", 3.0, 4.0, 2.9, _BLUE),
    ("shoppingcart shoppingtrolley", 0.95, 0.55, 1.0, _STEEL),
    ("slide", 3.0, 0.9, 2.0, _RED),
    ("streetbarrier", 0.5, 1.3, 1.0, _ORANGE),
    ("streetfountain", 0.5, 0.5, 1.2, _DARK),
    ("streetsign streetsign01 streetsign04", 0.1, 0.7, 2.4, _BLUE),
    ("swing swingcouch", 1.6, 2.4, 2.1, _WOOD),
    ("table", 0.8, 1.4, 0.75, _WOOD),
    ("trafficwarning", 1.2, 2.0, 3.0, _ORANGE),
    ("trampoline", 3.0, 3.0, 0.9, _DARK),
    ("trashbag", 0.5, 0.5, 0.6, _DARK),
    ("trashcan01 trashcan02 trashcan03 trashcan04 trashcan05", 0.6, 0.6, 1.1, _GREEN),
    ("travelcase", 0.3, 0.5, 0.7, _BLUE),
    ("vendingmachine", 0.9, 1.1, 2.0, _RED),
    ("warningaccident warningconstruction", 0.5, 0.9, 1.0, _RED),
    ("wateringcan", 0.2, 0.4, 0.35, _GREEN),
)


def _size_word(length_m: float, width_m: float, height_m: float) -> str:
    """Return CARLA's word for a size (EPropSize: its limits aren't published, so these are ours)."""
    longest = max(length_m, width_m, height_m)
    return "tiny" if longest < 0.3 else "small" if longest < 0.7 else "medium" if longest < 1.7 else "big"


for _names, *_size, _colour in _ROWS:
    for _name in _names.split():
        _length, _width, _height = _size
        _attributes = (
            role("prop"),
            Attribute("size", Kind.STRING, _size_word(_length, _width, _height), modifiable=False),
        )
        register(
            PropBlueprint(
                f"static.prop.{_name}", _attributes, (_DYNAMIC,), size_m=(_length, _width, _height), colour=_colour
            )
        )

# Shows a mesh of CARLA's own content, of which there is none here: it spawns, as it does there for an unknown path.
MESH = "static.prop.mesh"
_MESH_ATTRIBUTES = (role("prop"), Attribute("mesh_path", Kind.STRING, ""), *floats(mass="0.0", scale="1.0"))
register(Blueprint(MESH, _MESH_ATTRIBUTES, (_DYNAMIC,)))
