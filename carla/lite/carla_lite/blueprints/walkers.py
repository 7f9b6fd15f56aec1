"""The walkers of CARLA 0.9.16 by number: age, size, attributes and clothes.

Owns the rows and their blueprints. Children and police are those of CARLA's catalogue of pedestrians; it doesn't
publish the age or gender of the other figures, so these are "adult" and "other".
"""

from __future__ import annotations

from dataclasses import dataclass

from carla_lite.blueprints.blueprint import Attribute, Blueprint, Kind, read_only, role
from carla_lite.scenery.people import Look
from carla_lite.scenery.vehicle_meshes import BGR

AI_CONTROLLER = "controller.ai.walker"

# The first 14 are CARLA's walkers from before 0.9.12; CARLA 0.9.16 has 52.
_NUMBERS, _OLD = range(1, 53), range(1, 15)
_CHILDREN = frozenset((*range(9, 15), 48, 49))
_POLICE = frozenset((30, 32))

_SKINS = ((150, 180, 226), (126, 158, 208), (86, 118, 172), (60, 82, 124))
_HAIRS = ((34, 38, 44), (44, 66, 96), (90, 132, 168), (122, 126, 130), (28, 30, 62))
_TOPS = (
    (150, 92, 52),
    (58, 62, 168),
    (206, 208, 210),
    (70, 112, 70),
    (52, 148, 196),
    (66, 60, 62),
    (142, 84, 122),
    (176, 164, 120),
    (40, 92, 182),
    (112, 58, 40),
    (120, 124, 126),
)
_TROUSERS = ((96, 70, 48), (48, 46, 46), (86, 98, 112), (132, 128, 122), (62, 52, 74))
_UNIFORM: BGR = (74, 44, 34)


@dataclass(frozen=True)
class WalkerBlueprint(Blueprint):
    """Blueprint of a walker; half sizes of the bounding box in metres, whose centre is the actor's origin."""

    radius_m: float = 0.187679
    half_height_m: float = 0.93
    mass_kg: float = 75.0
    number: int = 1

    def look(self, wheelchair: bool) -> Look:
        """Return the look of the figure, always the same for one blueprint."""
        n = self.number
        top, trousers = _TOPS[n * 4 % len(_TOPS)], _TROUSERS[n * 3 % len(_TROUSERS)]
        hair = _HAIRS[n * 2 % len(_HAIRS)]
        if n in _POLICE:
            top, trousers, hair = _UNIFORM, _UNIFORM, _UNIFORM  # with a cap
        return Look(_SKINS[n * 7 % len(_SKINS)], hair, top, trousers, wheelchair)


def _walker(number: int) -> WalkerBlueprint:
    """Return the blueprint of a number, with CARLA's attributes (ActorBlueprintFunctionLibrary.cpp)."""
    child = number in _CHILDREN
    seated = not child and number not in _POLICE
    attributes = (
        role("pedestrian"),
        read_only("gender", "other"),
        read_only("generation", 1 if number in _OLD else 2),
        read_only("age", "child" if child else "adult"),
        read_only("can_use_wheelchair", seated),
        Attribute("speed", Kind.FLOAT, "0.0", ("0.0", "1.4", "2.8")),
        Attribute("is_invincible", Kind.BOOL, "true"),
        Attribute("use_wheelchair", Kind.BOOL, "false", ("false", "true") if seated else ("false",), restricted=True),
    )
    size = (0.187679, 0.55, 25.0) if child else (0.187679, 0.93, 75.0)
    return WalkerBlueprint(f"walker.pedestrian.{number:04}", attributes, (12,), 0, *size, number)


WALKERS: list[Blueprint] = [*map(_walker, _NUMBERS), Blueprint(AI_CONTROLLER, (role(),))]
