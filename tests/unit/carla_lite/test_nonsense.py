"""Impossible values for vehicles and the map are answered by a sentence, and the world continues."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from carla_lite.actors.traffic_lights import TrafficLight
from carla_lite.maps import Maps
from carla_lite.methods import table
from carla_lite.options import WorldOptions
from carla_lite.protocol import wire
from carla_lite.protocol.channel import listen
from carla_lite.protocol.dialect import DIALECTS
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import RpcError
from carla_lite.scenery.camera import Pose
from carla_lite.world import World

CAR, LIGHT, NOBODY = object(), object(), 999_999
_SETTINGS = wire.default_settings().raw


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with listen("127.0.0.1", 0) as listener:
        world = World(Streams(listener), Maps("Lite01"))
        point = world.network.spawn_points()[0]
        world.spawn("vehicle.tesla.model3", {}, Pose(point.x, point.y, point.z, 0.0, point.yaw))
        yield world


def test_a_blueprint_newer_than_the_client_is_not_had() -> None:
    cosmos = "sensor.camera.cosmos_visualization"
    with listen("127.0.0.1", 0) as listener:
        world = World(Streams(listener), Maps("Lite01"), WorldOptions(dialect=DIALECTS["0.9.15"]))
        listed: Any = table.answer(world, "get_actor_definitions", [])
        assert cosmos not in {one[1] for one in listed[0][1]}
        with pytest.raises(RpcError, match=f"CARLA 0.9.15 has no {cosmos}"):
            world.spawn(cosmos, {}, world.spectator.pose)


def answer(world: World, name: str, *args: Any) -> str:
    """Return the sentence that a call is refused with, or '' if it isn't."""
    lights = [actor.id for actor in world.actors.values() if isinstance(actor, TrafficLight)]
    given = [world.vehicles[0].id if one is CAR else lights[0] if one is LIGHT else one for one in args]
    reply: Any = table.answer(world, name, given)
    return reply[0][1][0] if reply[0][0] == 0 and reply[0] != [False] else ""


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("get_wheel_steer_angle", (CAR, 4), "wheel 4 of vehicle.tesla.model3 doesn't exist, expected 0 to 3"),
        ("get_wheel_steer_angle", (NOBODY, 0), "actor 999999 does not exist"),
        ("set_wheel_steer_direction", (CAR, 0, math.nan), "finite number"),
        ("open_vehicle_door", (CAR, 5), "door 5 doesn't exist, expected 0 to 3, or 6 for all"),
        ("apply_ackermann_control_to_vehicle", (CAR, [0.0, 0.0, math.nan, 0.0, 0.0]), "finite number"),
        ("apply_ackermann_controller_settings", (CAR, [math.inf] * 6), "finite number"),
        ("enable_carsim", (CAR, "file"), "has no CarSim"),
        ("use_carsim_road", (CAR, True), "has no CarSim"),
        ("enable_chrono_physics", (CAR, 10, 0.01, "", "", "", ""), "has no Chrono"),
        ("enable_environment_objects", ([10**12], False), "environment object 1000000000000 does not exist"),
        ("update_lights_state", ("me", [[10**6, [0, 0, 0], 1.0, 2, [1, 2, 3], True]], False), "light 1000000 does not"),
        ("apply_color_texture_to_objects", (["x"], 2, [1, 1, [[1, 2, 3]]]), "unable to find Actor"),
        ("apply_color_texture_to_objects", (["buildings_0"], 2, [2, 2, []]), "expected 4"),
        ("get_actor_component_world_transform", (CAR, "x"), "it has no x, expected one of RootComponent"),
        ("set_imui_gravity", (math.nan,), "finite number"),
        ("spawn_actor_with_parent", ([0, "sensor.other.gnss", []], [[0] * 3, [0] * 3], CAR, 0, "x"), "has no bone x"),
        ("get_sensor_token", (2**64 - 1,), "stream 18446744073709551615 does not exist"),
        ("set_traffic_light_red_time", (LIGHT, 1e300), "expected a number within"),
        ("set_episode_settings", ([*_SETTINGS[:4], 0.0, 10, *_SETTINGS[6:]],), "max_substep_delta_time is 0.0"),
        ("set_episode_settings", ([*_SETTINGS[:5], 0, *_SETTINGS[6:]],), "max_substeps 0"),
        ("set_episode_settings", ([*_SETTINGS[:2], [True, 1e-300], *_SETTINGS[3:]],), "fixed_delta_seconds is 1e-300"),
        ("set_weather_parameters", ([0.0] * 13,), "weather is [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...], expected [a number"),
        ("get_spectator", (1, 2), "got 2 arguments, expected 0"),
        ("fly", (CAR,), "carla-lite has no method fly"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(world: World, name: str, args: tuple[Any, ...], sentence: str):
    assert sentence in answer(world, name, *args)
    world.tick()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("restore_physx_physics", (CAR,)),
        ("close_vehicle_door", (CAR, 6)),
        ("load_map_layer", (0,)),
        ("unload_map_layer", (1 << 15,)),
        ("apply_color_texture_to_objects", (["buildings_0"], 0, [1, 1, [[1, 2, 3]]])),
        ("enable_environment_objects", ([], True)),
        ("clear_debug_shape", ()),
        ("set_wheel_pitch_angle", (CAR, 3, 20.0)),
    ],
)
def test_what_changes_nothing_is_no_error(world: World, name: str, args: tuple[Any, ...]):
    assert answer(world, name, *args) == ""
    world.tick()
