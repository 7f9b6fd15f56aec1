"""The environment on a town with traffic lights: what a drive finds them at, and which it counts as run."""

from __future__ import annotations

from collections.abc import Iterator

import carla
import pytest

from agent.config import EnvironmentConfig, SimulatorConfig, TrafficConfig
from agent.env.driving import DrivingEnv
from agent.env.route import held_out_routes
from agent.evaluation.drivers import PidPurePursuit
from agent.evaluation.routes import completed, evaluate
from tests.conftest import Server, serve
from tests.signalled import signalled

RED, GREEN = carla.TrafficLightState.Red, carla.TrafficLightState.Green


@pytest.fixture(scope="module")
def lit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("maps") / "Signalled.xodr"
    path.write_text(signalled(), encoding="utf-8")
    server = serve(str(path))
    yield server
    server.end()


def make(server: Server, lights: bool) -> DrivingEnv:
    simulator = SimulatorConfig(host="127.0.0.1", port=server.port, patience_s=60.0)
    return DrivingEnv(EnvironmentConfig(traffic=TrafficConfig(lights=lights)), simulator)


def seen(env: DrivingEnv) -> list[carla.TrafficLightState]:
    return [light.get_state() for light in env.session.world.get_actors().filter("traffic.traffic_light")]


def test_lights_are_green_for_good_unless_asked_for(lit_server: Server):
    env = make(lit_server, lights=False)
    try:
        env.reset(seed=1)
        for _ in range(250):
            env.session.tick()
        assert set(seen(env)) == {GREEN}
    finally:
        env.close()


def test_lights_that_change_begin_anew_with_each_drive(lit_server: Server):
    env = make(lit_server, lights=True)
    try:
        env.reset(seed=1)
        first = seen(env)
        assert {RED, GREEN} <= set(first)
        for _ in range(200):
            env.session.tick()
        assert seen(env) != first
        env.reset()
        assert seen(env) == first
    finally:
        env.close()


def test_an_evaluation_counts_the_red_lights_that_a_driver_runs(lit_server: Server):
    """The one that drives by numbers doesn't look at lights."""
    counts = []
    for lights in (False, True):
        env = make(lit_server, lights)
        try:
            (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3, min_turns=1)
            evaluation = completed(evaluate(env, PidPurePursuit(), [route], "pid"))
        finally:
            env.close()
        (result,) = evaluation.routes
        assert result.success
        assert result.driving_score == pytest.approx(100.0 / (1.0 + 0.4 * result.red_lights), rel=0.01)
        assert result.red_lights == result.red_lights_met
        counts.append(result.red_lights)
    assert counts[0] == 0
    assert counts[1] >= 1
