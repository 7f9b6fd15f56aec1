"""What the environment knows of the road ahead, read through the real client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import carla
import numpy as np
import pytest

from carla_td3.config import EnvironmentConfig, SimulatorConfig
from carla_td3.env import privileged
from carla_td3.env.car import Motion
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.hazards import FRONT_M, Light, hazards
from carla_td3.env.route import Route, held_out_routes
from carla_td3.env.surroundings import Surroundings
from tests.conftest import Server

STEP = np.zeros(2, np.float32)


@pytest.fixture(scope="module")
def env(module_server: Server) -> Iterator[DrivingEnv]:
    simulator = SimulatorConfig(host="127.0.0.1", port=module_server.port, patience_s=60.0)
    made = DrivingEnv(EnvironmentConfig(privileged=True), simulator)
    yield made
    made.close()


@pytest.fixture
def route(env: DrivingEnv) -> Route:
    (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3, min_turns=1)
    return route


def put(env: DrivingEnv, kind: str, route: Route, s_m: float, right_m: float = 0.0) -> Any:
    x, y, yaw = (float(np.interp(s_m, route.s, values)) for values in (*route.points.T, route.yaw))
    where = carla.Location(x - right_m * math.sin(yaw), y + right_m * math.cos(yaw), route.start_z_m + 1.0)
    blueprint = env.session.world.get_blueprint_library().filter(kind)[0]
    return env.session.world.spawn_actor(blueprint, carla.Transform(where, carla.Rotation(yaw=math.degrees(yaw))))


def test_who_comes_and_goes_before_the_car_is_seen_in_the_very_next_step(env: DrivingEnv, route: Route):
    observation, _ = env.reset(options={"route": route})
    assert env.observation_space.contains(observation)
    assert env.hazards.lead_gap_m == env.hazards.walker_gap_m == math.inf
    car = put(env, "vehicle.tesla.model3", route, 20.0)
    observation, *_ = env.step(STEP)
    assert env.hazards.lead_gap_m == pytest.approx(20.0 - 2.0 * FRONT_M, abs=0.5)
    lead = privileged.NAMES.index("lead_near")
    assert observation["privileged"][lead] > 0.5
    car.destroy()
    walker = put(env, "walker.pedestrian.*", route, 15.0, right_m=1.0)
    observation, *_ = env.step(STEP)
    assert observation["privileged"][lead] == 0.0
    assert env.hazards.walker_gap_m == pytest.approx(15.0 - FRONT_M, abs=0.6)
    assert env.hazards.walker_lateral_m == pytest.approx(1.0, abs=0.1)
    walker.destroy()
    env.step(STEP)
    assert env.hazards.walker_gap_m == math.inf


def test_the_lights_colour_is_that_of_the_one_the_client_knows_the_car_to_be_before(env: DrivingEnv, route: Route):
    """Put on the route metre by metre: where the car comes to a light by CARLA's own record, its line is ahead."""
    env.reset(options={"route": route})
    assert env.car is not None
    actor, seen, was = env.car.actor, 0, False
    surroundings = Surroundings(env.session, actor)
    state = carla.TrafficLightState.Yellow
    for light in env.session.world.get_actors().filter("traffic.traffic_light"):
        light.set_state(state)
    for s_m in np.arange(0.0, route.length_m, 1.0):
        x, y, yaw = (float(np.interp(s_m, route.s, values)) for values in (*route.points.T, route.yaw))
        pose = carla.Transform(carla.Location(x, y, route.start_z_m + 0.1), carla.Rotation(yaw=math.degrees(yaw)))
        actor.set_transform(pose)
        frame = env.session.tick()
        if actor.is_at_traffic_light() and not was:
            seen += 1
            motion = Motion(frame, x, y, yaw, 0.0, 0.0)
            found = hazards(route, route.project(x, y), motion, surroundings.world())
            assert found.light is Light.YELLOW
            assert 0.0 < found.light_gap_m < 3.0
        was = actor.is_at_traffic_light()
    assert seen >= 1
