"""RPC methods for objects beside the roads: environment objects, map layers, boxes, textures, street lights."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from carla_lite.actors.actor import compose
from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError, Vector
from carla_lite.scenery.projection import Pose
from carla_lite.support import approximated
from carla_lite.world import World

_ANY = 255
_DIFFUSE = 2

# As the wire sends them (protocol, section 2.3). A colour has an alpha, or none.
_Colour: TypeAlias = tuple[int, int, int] | tuple[int, int, int, int]
Pixel: TypeAlias = tuple[float, float, float] | tuple[float, float, float, float]
Texture: TypeAlias = tuple[int, int, list[Pixel]]
Light: TypeAlias = tuple[int, Vector, float, int, _Colour, bool]


@method(approximated("the objects that carla-lite builds beside the roads, not the assets of CARLA's maps"))
def get_environment_objects(world: World, label: int) -> list[Any]:
    """Return the objects beside the road, signs included, with one label or (255) all."""
    return [
        [
            wire.transform(*one.centre, yaw=one.yaw),
            wire.bounding_box(one.centre, one.extent, one.yaw),
            one.number,
            one.name,
            one.tag,
        ]
        for one in world.environment.listed()
        if label in (_ANY, one.tag)
    ]


@method
def enable_environment_objects(world: World, numbers: list[int], enabled: bool) -> None:
    """Enable or disable objects; disabled ones can be neither seen nor hit."""
    world.environment.enable(numbers, enabled)


@method(approximated("the objects that carla-lite builds beside the roads, not the assets of CARLA's maps"))
def get_all_level_BBs(  # noqa: N802 (the client's name)
    world: World, label: int
) -> list[Any]:
    """Return the bounding boxes of everything present, in the world's frame: map objects, then actors, as in CARLA.

    Source: BoundingBoxCalculator.cpp.
    """
    still = [
        wire.bounding_box(one.centre, one.extent, one.yaw)
        for one in world.environment.visible()
        if label in (_ANY, one.tag)
    ]
    return still + [_box(actor) for actor in world.moving() if label in (_ANY, actor.blueprint.semantic_tags[0])]


def _box(actor: Any) -> list[Any]:
    (x, y, z), extent, *_ = actor.box()
    at = compose(actor.pose, Pose(x, y, z, 0.0, 0.0, 0.0))
    turn = [math.degrees(angle) for angle in (at.pitch, at.yaw, at.roll)]
    return [[at.x, at.y, at.z], extent, turn, actor.id]


@method(approximated("layers are buildings, foliage and street lights; the others are empty"))
def load_map_layer(world: World, layers: int) -> None:
    """Load layers of the map: buildings, foliage and street lights; the others are empty here."""
    _switch_layers(world, "load_map_layer", layers, True)


@method(approximated("layers are buildings, foliage and street lights; the others are empty"))
def unload_map_layer(world: World, layers: int) -> None:
    """Unload layers of the map."""
    _switch_layers(world, "unload_map_layer", layers, False)


def _switch_layers(world: World, name: str, layers: int, loaded: bool) -> None:
    if world.has_layers:
        world.environment.load_layers(layers, loaded)
    else:  # as in CARLA, where only maps whose names end with _Opt have layers
        world.report_unsupported(name, "only maps whose name ends with _Opt have layers, as in CARLA")


@method(approximated("the objects that carla-lite builds beside the roads, not the assets of CARLA's maps"))
def get_names_of_all_objects(world: World) -> list[str]:
    """Return the names of the objects that accept textures."""
    return [one.name for one in world.environment.listed()]


@method(
    approximated(
        "a diffuse texture gives an object its mean colour; normal, roughness and emissive textures have no effect"
    )
)
def apply_color_texture_to_objects(world: World, names: list[str], parameter: int, texture: Texture) -> None:
    """Give objects the mean colour of a diffuse texture; other textures have no effect."""
    _paint(world, names, parameter, texture, 1.0)


@method(
    approximated(
        "a diffuse texture gives an object its mean colour; normal, roughness and emissive textures have no effect"
    )
)
def apply_float_color_texture_to_objects(world: World, names: list[str], parameter: int, texture: Texture) -> None:
    """Like ``apply_color_texture_to_objects``, with colours from 0 to 1."""
    _paint(world, names, parameter, texture, 255.0)


def _paint(world: World, names: list[str], parameter: int, texture: Texture, scale: float) -> None:
    width, height, pixels = texture
    if parameter != _DIFFUSE:
        world.report_unsupported("apply_texture", "only diffuse textures are shown, by their mean colour")
        world.environment.paint(names, None)
        return
    if not pixels or len(pixels) != width * height:
        raise RpcError(f"a texture of {width} × {height} has {len(pixels)} pixels, expected {width * height} and one")
    red, green, blue = (int(part) for part in _mean_colour(pixels, scale))
    world.environment.paint(names, (blue, green, red))


def _mean_colour(pixels: list[Pixel], scale: float) -> list[float]:
    mean = np.array([pixel[:3] for pixel in pixels], float).mean(axis=0) * scale
    found: list[float] = np.clip(np.nan_to_num(np.rint(mean)), 0.0, 255.0).tolist()
    return found


@method(approximated("the lamps that carla-lite builds, not those of CARLA's maps"))
def query_lights_state(world: World, _client: str) -> list[Any]:
    """Return the street lights, if their layer is loaded."""
    return world.environment.lights.states(one.number for one in world.environment.listed())


@method(
    approximated(
        "a lamp that is turned off at night is dark; colours, intensities and groups are kept, and change no picture"
    )
)
def update_lights_state(world: World, _client: str, lights: list[Light], *_discard: Any) -> None:
    """Apply a client's changes. A lamp turned off at night is dark; colours and intensities are only stored."""
    world.environment.update_lights(lights)


@method
def update_day_night_cycle(world: World, _client: str, active: bool) -> None:
    """Set whether dusk and dawn switch the street lights."""
    world.environment.lights.follow_the_sun = active


@method
def get_imui_gravity(world: World) -> float:
    """Return the gravity that inertial sensors feel (m/s²)."""
    return world.imu_gravity_mps2


@method
def set_imui_gravity(world: World, gravity_mps2: float) -> None:
    """Set the gravity that inertial sensors measure (m/s²)."""
    world.imu_gravity_mps2 = wire.finite(gravity_mps2)
