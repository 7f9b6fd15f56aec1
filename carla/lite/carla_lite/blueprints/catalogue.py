"""The blueprint library by id.

Owns the order of its families. Their rows are in the modules beside this one. Never touches a world.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from carla_lite.blueprints.blueprint import Blueprint, floats, role
from carla_lite.blueprints.props import PROPS
from carla_lite.blueprints.sensors import SENSORS
from carla_lite.blueprints.vehicles import VEHICLES
from carla_lite.blueprints.walkers import WALKERS
from carla_lite.protocol.wire import RpcError

SPECTATOR = Blueprint("spectator")
"""Blueprint of the actor that exists from the start; not in the catalogue, as in CARLA."""
FRICTION_TRIGGER = Blueprint(
    "static.trigger.friction",
    # Half sizes in centimetres (AddVariationsForTrigger in ActorBlueprintFunctionLibrary.cpp).
    (role(), *floats(friction="3.5", extent_x="1.0", extent_y="1.0", extent_z="1.0")),
)


def library(blueprints: Iterable[Blueprint]) -> dict[str, Blueprint]:
    """Return blueprints by id; their order gives the uids.

    Raises:
        ValueError: two have the same id.
    """
    found: dict[str, Blueprint] = {}
    for blueprint in blueprints:
        if blueprint.id in found:
            raise ValueError(f"blueprint {blueprint.id} is in the catalogue already: give one of the two another id.")
        found[blueprint.id] = replace(blueprint, uid=len(found) + 1)
    return found


# The trigger stays in its place: clients know blueprints by their uids.
CATALOGUE = library([*VEHICLES, *PROPS, *WALKERS, *SENSORS[:5], FRICTION_TRIGGER, *SENSORS[5:]])
"""All blueprints by id."""


def ids_of(family: type[Blueprint]) -> list[str]:
    """Return the ids of a family."""
    return [name for name, blueprint in CATALOGUE.items() if isinstance(blueprint, family)]


def find(name: str) -> Blueprint:
    """Return the blueprint of this id.

    Raises:
        RpcError: there is none.
    """
    if name not in CATALOGUE:
        raise RpcError(f"blueprint {name} is unknown here; get_blueprint_library() lists what exists")
    return CATALOGUE[name]
