"""Hazards of the road ahead, read through the real client."""

from __future__ import annotations

import math
from typing import Any

import carla
import numpy as np
import pytest

from carla_td3.config import EnvironmentConfig
from carla_td3.env import privileged
from carla_td3.env.car import Motion
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.hazards import FRONT_M, Light, hazards
from carla_td3.env.route import Route, held_out_routes
from tests.wire.conftest import MakeEnv

STEP = np.zeros(2, np.float32)


@pytest.fixture
def env(make_env: MakeEnv) -> DrivingEnv:
    return make_env(EnvironmentConfig(privileged=True))


@pytest.fixture
def route(env: DrivingEnv) -> Route:
    (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3, min_turns=1)
    return route


def pose(route: Route, s_m: float, right_m: float = 0.0, up_m: float = 0.1) -> carla.Transform:
    x, y, yaw = (float(np.interp(s_m, route.s, values)) for values in (*route.points.T, route.yaw))
    where = carla.Location(x - right_m * math.sin(yaw), y + right_m * math.cos(yaw), route.start_z_m + up_m)
    return carla.Transform(where, carla.Rotation(yaw=math.degrees(yaw)))


def put(env: DrivingEnv, kind: str, where: carla.Transform) -> Any:
    blueprint = env.session.world.get_blueprint_library().filter(kind)[0]
    return env.session.world.spawn_actor(blueprint, where)


def test_who_comes_and_goes_is_seen_in_the_next_step(env: DrivingEnv, route: Route):
    observation, _ = env.reset(options={"route": route})
    assert env.observation_space.contains(observation)
    assert env.hazards.lead_gap_m == env.hazards.walker_gap_m == math.inf
    car = put(env, "vehicle.tesla.model3", pose(route, 20.0, up_m=1.0))
    observation, *_ = env.step(STEP)
    assert env.hazards.lead_gap_m == pytest.approx(20.0 - 2.0 * FRONT_M, abs=0.5)
    lead = privileged.NAMES.index("lead_near")
    assert observation["privileged"][lead] > 0.5
    car.destroy()
    walker = put(env, "walker.pedestrian.*", pose(route, 15.0, right_m=1.0, up_m=1.0))
    observation, *_ = env.step(STEP)
    assert observation["privileged"][lead] == 0.0
    assert env.hazards.walker_gap_m == pytest.approx(15.0 - FRONT_M, abs=0.6)
    assert env.hazards.walker_lateral_m == pytest.approx(1.0, abs=0.1)
    walker.destroy()
    env.step(STEP)
    assert env.hazards.walker_gap_m == math.inf


def test_the_light_ahead_is_the_one_of_carlas_own_record(env: DrivingEnv, route: Route):
    """Put on the route metre by metre: where the car comes to a light by CARLA's own record, its line is ahead."""
    env.reset(options={"route": route})
    assert env.car is not None
    actor, seen, was = env.car.actor, 0, False
    for light in env.session.world.get_actors().filter("traffic.traffic_light"):
        light.set_state(carla.TrafficLightState.Yellow)
    for s_m in np.arange(0.0, route.length_m, 1.0):
        here = pose(route, s_m)
        actor.set_transform(here)
        frame = env.session.tick()
        if actor.is_at_traffic_light() and not was:
            seen += 1
            x, y = here.location.x, here.location.y
            motion = Motion(frame, x, y, math.radians(here.rotation.yaw), 0.0, 0.0)
            found = hazards(route, route.project(x, y), motion, env.scene.surroundings.world())
            assert found.light is Light.YELLOW
            assert 0.0 < found.light_gap_m < 3.0
        was = actor.is_at_traffic_light()
    assert seen >= 1
