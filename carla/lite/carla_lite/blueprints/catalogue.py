"""All blueprints by id.

Owns their order. The blueprints of each family (vehicles, walkers, props, sensors) are in a module of this folder.
Never touches a world.
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
    """Return the blueprints by id. A blueprint's uid is its place in this order, from 1.

    Raises:
        ValueError: two blueprints have the same id.
    """
    found: dict[str, Blueprint] = {}
    for blueprint in blueprints:
        if blueprint.id in found:
            raise ValueError(f"blueprint {blueprint.id} is in the catalogue already: give one of the two another id.")
        found[blueprint.id] = replace(blueprint, uid=len(found) + 1)
    return found


# Keep this order: it gives the uids, by which clients name blueprints.
CATALOGUE = library([*VEHICLES, *PROPS, *WALKERS, *SENSORS[:5], FRICTION_TRIGGER, *SENSORS[5:]])
"""All blueprints by id."""


def ids_of(family: type[Blueprint]) -> list[str]:
    """Return the ids of a family."""
    return [name for name, blueprint in CATALOGUE.items() if isinstance(blueprint, family)]


def find(name: str) -> Blueprint:
    """Return the blueprint of this id.

    Raises:
        RpcError: no blueprint has this id.
    """
    if name not in CATALOGUE:
        raise RpcError(f"there is no blueprint {name}; get_blueprint_library() lists all blueprints")
    return CATALOGUE[name]
