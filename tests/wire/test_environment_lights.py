"""The environment on a town with traffic lights: what a drive finds them at, and which it counts as run."""

from __future__ import annotations

import math
from itertools import pairwise

import carla
import numpy as np
import pytest

from carla_td3.config import EnvironmentConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.route import held_out_routes
from carla_td3.env.stop_signs import stop_signs
from carla_td3.env.surroundings import Surroundings
from carla_td3.evaluation.routes import completed, evaluate
from tests.wire.conftest import MakeEnv

RED, GREEN = carla.TrafficLightState.Red, carla.TrafficLightState.Green


def town(lights: bool, restless: float = 0.0) -> EnvironmentConfig:
    return EnvironmentConfig(traffic=TrafficConfig(lights=lights, lights_restless=restless))


def seen(env: DrivingEnv) -> list[carla.TrafficLightState]:
    return [light.get_state() for light in env.session.world.get_actors().filter("traffic.traffic_light")]


def test_lights_are_green_for_good_unless_asked_for(make_env: MakeEnv):
    env = make_env(town(lights=False))
    env.reset(seed=1)
    for _ in range(250):
        env.session.tick()
    assert set(seen(env)) == {GREEN}


def test_lights_begin_again_for_a_seed_and_go_on_without(make_env: MakeEnv):
    env = make_env(town(lights=True))
    env.reset(seed=1)
    first = seen(env)
    assert {RED, GREEN} <= set(first)
    for _ in range(200):
        env.session.tick()
    later = seen(env)
    assert later != first
    env.reset()
    assert seen(env) == later
    env.reset(options={"seed": 3})
    assert seen(env) == first
    for _ in range(200):
        env.session.tick()
    env.reset()
    assert seen(env) == first, "as a fresh environment finds them"


def test_a_drives_own_lights_may_be_restless(make_env: MakeEnv):
    env = make_env(town(lights=True, restless=1.0))
    (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3, min_turns=1)
    env.reset(options={"route": route, "seed": 3})
    assert env.car is not None
    ours = Surroundings(env.session, env.car.actor).lights_on(route)
    junctions = {each.id: each for light in ours for each in light.get_group_traffic_lights()}
    assert 1 <= len(ours) < len(junctions)
    assert {each.get_state() for each in junctions.values()} == {RED, GREEN}, "not in a drive that is compared"
    env.reset(options={"route": route})
    own, shown = {light.id for light in ours}, []
    for _ in range(400):
        env.step(np.array((0.0, -1.0), np.float32))
        shown.append(tuple(light.get_state() for light in ours))
        assert {each.get_state() for each in junctions.values() if each.id not in own} == {RED}
    changes = [number for number, (a, b) in enumerate(pairwise(shown)) if a != b]
    assert len(changes) >= 8
    assert {state for states in shown for state in states} == {RED, GREEN}
    assert len({number % 10 for number in changes}) == 1, "once a second at most"
    env.reset(options={"seed": 3})
    states = {tuple(each.get_state() for each in junctions.values())}
    for _ in range(300):
        env.session.tick()
        states.add(tuple(each.get_state() for each in junctions.values()))
    assert len(states) >= 4


def test_an_evaluation_counts_red_lights_run(make_env: MakeEnv):
    """The one that drives by numbers doesn't look at lights."""
    counts = []
    for lights in (False, True):
        env = make_env(town(lights))
        (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3, min_turns=1)
        evaluation = completed(evaluate(env, PidPurePursuit(), [route], "pid"))
        env.close()
        (result,) = evaluation.routes
        assert result.success
        assert result.driving_score == pytest.approx(100.0 / (1.0 + 0.4 * result.red_lights), rel=0.01)
        assert result.red_lights == result.red_lights_met
        counts.append(result.red_lights)
    assert counts[0] == 0
    assert counts[1] >= 1


def test_a_stop_sign_that_is_run_is_listed(make_env: MakeEnv):
    env = make_env(town(lights=False))
    env.reset(seed=1)
    holds = [(hold.x_m, hold.y_m) for hold in stop_signs(env.session)]
    rng = np.random.default_rng(0)
    drawn = (env.planner.sample(rng, env.config.route) for _ in range(100))
    passed = ((r, sum(any(math.dist(p, hold) < 1.0 for p in r.points.tolist()) for hold in holds)) for r in drawn)
    route, signs = next((route, signs) for route, signs in passed if signs)
    observation, info = env.reset(options={"route": route, "continue_after_infractions": True})
    driver = PidPurePursuit()
    while info["end"] is None:
        *_, info = env.step(driver.act(observation, env.state))
    assert [each.kind for each in info["infractions"]] == ["stop_sign"] * signs
