"""Where a drive can start and where it can't: occupied places, slopes, and a slow first car."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import carla
import numpy as np
import pytest

from carla_run.exits import Exit
from carla_td3.config import EnvironmentConfig, RouteConfig, SimulatorConfig, TimeLimitConfig
from carla_td3.env.car import start_of
from carla_td3.env.driving import STARTS_A_RESET, DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.observation import DriverState, Observation
from carla_td3.env.route import Route, held_out_routes
from carla_td3.env.session import BlockedStart
from carla_td3.evaluation.metrics import write_json
from carla_td3.evaluation.routes import completed, evaluate
from carla_td3.evaluation.video import record
from carla_td3.exits import exit_code
from tests.conftest import Server, StartServer
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL

GO = np.array((0.0, 0.3), np.float32)
ROAD = """<road name="" id="{id}" length="200" junction="-1"><link>{link}</link>
  <planView><geometry s="0" x="{x}" y="0" hdg="0" length="200"><line/></geometry></planView>
  <elevationProfile><elevation s="0" a="{z}" b="0.2" c="0" d="0"/></elevationProfile>
  <lanes><laneOffset s="0" a="0" b="0" c="0" d="0"/><laneSection s="0"><center><lane id="0" type="none"/></center>
    <right><lane id="-1" type="driving"><link><{way} id="-1"/></link><width sOffset="0" a="4" b="0" c="0" d="0"/></lane>
  </right></laneSection></lanes></road>"""
UPHILL = f"""<OpenDRIVE><header revMajor="1" revMinor="4"><geoReference>+lat_0=49 +lon_0=8</geoReference></header>
{
    ROAD.format(
        id=1,
        x=0,
        z=0,
        way="successor",
        link='<successor elementType="road" elementId="2" contactPoint="start"/>',
    )
}
{
    ROAD.format(
        id=2,
        x=200,
        z=40,
        way="predecessor",
        link='<predecessor elementType="road" elementId="1" contactPoint="end"/>',
    )
}</OpenDRIVE>"""


class Parked:
    """Cars that another client puts where drives start."""

    def __init__(self, server: Server) -> None:
        self._client = carla.Client("127.0.0.1", server.port)
        self._client.set_timeout(10.0)
        self.world = self._client.get_world()
        self._cars: list[carla.Actor] = []

    def on(self, pose: carla.Transform, fixed: bool = False) -> None:
        kind = self.world.get_blueprint_library().find("vehicle.tesla.model3")
        self._cars.append(self.world.spawn_actor(kind, pose))
        self._cars[-1].set_simulate_physics(not fixed)

    def gone(self) -> None:
        self._client.apply_batch_sync([carla.command.DestroyActor(car) for car in self._cars], False)
        self._cars.clear()


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server()


@pytest.fixture
def parked(server: Server) -> Parked:
    return Parked(server)


@pytest.fixture
def env(server: Server) -> Iterator[DrivingEnv]:
    made = make(server)
    yield made
    made.close()


def make(server: Server, config: EnvironmentConfig | None = None, seed: int = 0, **simulator: float) -> DrivingEnv:
    address = SimulatorConfig(host="127.0.0.1", port=server.port, patience_s=20.0, **simulator)
    return DrivingEnv(config, address, seed)


def first_drawn(server: Server, seed: int) -> Route:
    env = make(server)
    env.reset(seed=seed)
    env.close()
    return env.state.route


def stands_on(env: DrivingEnv, route: Route) -> bool:
    return bool(np.hypot(*(route.points[0] - (env.state.x_m, env.state.y_m))) < 0.01)


def test_a_start_that_is_taken_is_no_lost_simulator_and_another_route_is_drawn(server: Server, parked: Parked) -> None:
    taken = first_drawn(server, seed=7)
    parked.on(start_of(taken))
    env = make(server)
    assert env.planner.places
    connection = env.session.client
    for _ in range(2):  # where the car is spawned, and where it is moved to
        info = env.reset(seed=7)[1]
        assert info["route"] != taken.name
        assert stands_on(env, env.state.route)
        assert env.session.client is connection
    env.close()


def test_a_taken_start_of_a_given_route_is_told_until_it_is_free(env: DrivingEnv, parked: Parked) -> None:
    taken, free = held_out_routes(env.planner, env.config.route, 2, seed=1)
    connection = env.session.client
    parked.on(start_of(taken))
    where = r"\({:.1f}, {:.1f}\): something stands".format(*taken.points[0])
    for _ in range(2):
        with pytest.raises(BlockedStart, match=where):
            env.reset(options={"route": taken})
        assert env.reset(options={"route": free})[1]["end"] is None
    parked.gone()
    observation, info = env.reset(options={"route": taken})
    assert info["route"] == taken.name
    np.testing.assert_allclose(observation["vector"][:3], 0.0, atol=1e-4)
    assert env.session.client is connection


def test_a_car_that_was_pushed_off_its_start_has_not_started(env: DrivingEnv, parked: Parked) -> None:
    """Across the road and fixed to it: its middle is beside the start, its bonnet on it."""
    other, route = held_out_routes(env.planner, env.config.route, 2, seed=1)
    env.reset(options={"route": other})
    across = start_of(route)
    across.location += carla.Location(across.get_right_vector() * 2.5)
    across.rotation.yaw += 90.0
    parked.on(across, fixed=True)
    with pytest.raises(BlockedStart):
        env.reset(options={"route": route})


def test_a_town_that_is_full_is_one_sentence_after_a_few_starts(env: DrivingEnv, parked: Parked) -> None:
    for spawn in parked.world.get_map().get_spawn_points():
        parked.on(spawn)
    assert env.planner.places
    connection, ticks = env.session.client, env.session.ticks
    with pytest.raises(BlockedStart, match="No car can start at") as blocked:
        env.reset()
    assert exit_code(blocked.value) == Exit.NO_SIMULATOR
    assert env.session.client is connection
    assert env.session.ticks == ticks
    assert STARTS_A_RESET > 1


class Leaver(PidPurePursuit):
    """Drives well; the parked cars leave once it has begun."""

    def __init__(self, parked: Parked) -> None:
        super().__init__()
        self._parked = parked

    def act(self, observation: Observation, state: DriverState) -> np.ndarray:
        self._parked.gone()
        return super().act(observation, state)


def test_an_evaluation_drives_a_route_later_whose_start_was_taken(env: DrivingEnv, parked: Parked) -> None:
    routes = held_out_routes(env.planner, env.config.route, 2, seed=1)
    parked.on(start_of(routes[0]))
    found = completed(evaluate(env, Leaver(parked), routes, "pid"))
    assert [result.route for result in found.routes] == [route.name for route in routes]
    assert all(result.success for result in found.routes)
    assert found.blocked == ()


def test_an_evaluation_names_the_route_whose_start_stayed_taken(
    env: DrivingEnv, parked: Parked, tmp_path: Path
) -> None:
    routes = held_out_routes(env.planner, env.config.route, 2, seed=1)
    parked.on(start_of(routes[0]))
    found = completed(evaluate(env, PidPurePursuit(), routes, "pid"))
    assert [result.route for result in found.routes] == [routes[1].name]
    assert found.totals()["success"] == 1.0
    assert found.totals()["blocked"] == 1.0
    write_json([found], tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())[0]["blocked"] == [routes[0].name]
    with pytest.raises(BlockedStart):
        completed(evaluate(env, PidPurePursuit(), routes[:1], "pid"))


def test_a_film_goes_on_with_the_next_route_where_a_start_is_taken(
    env: DrivingEnv, parked: Parked, tmp_path: Path
) -> None:
    routes = held_out_routes(env.planner, env.config.route, 2, seed=1)
    parked.on(start_of(routes[0]))
    film = completed(record(env, PidPurePursuit(), routes, tmp_path / "film.mp4", max_seconds=2.0))
    assert film.seconds == pytest.approx(2.0)
    with pytest.raises(BlockedStart):
        completed(record(env, PidPurePursuit(), routes[:1], tmp_path / "none.mp4"))
    assert not (tmp_path / "none.mp4").exists()


@pytest.mark.long
def test_a_training_goes_on_where_starts_are_taken(server: Server, parked: Parked, new_run: NewRun) -> None:
    spawns = parked.world.get_map().get_spawn_points()
    for spawn in spawns[::3]:
        parked.on(spawn)
    run = new_run("crowded", server, settings=SMALL)
    run.start()
    run.finish()
    assert run.events("finished")
    assert not run.events("collector_restarted")


SLOW_CARS = """
import time
from carla_lite.actors.actor import Vehicle
entered = Vehicle.entered
def enter(self, world):
    time.sleep(2.5)
    entered(self, world)
Vehicle.entered = enter
"""


def test_a_simulator_that_takes_its_time_for_the_first_car_is_not_lost(start_server: StartServer) -> None:
    env = make(start_server(prelude=SLOW_CARS), timeout_s=20.0)
    assert env.planner.places
    connection = env.session.client
    assert env.reset()[1]["end"] is None
    assert env.session.client is connection
    assert not env.step(GO)[4]["simulator_lost"]
    cars = env.session.world.get_actors().filter("vehicle.*")
    assert [car.attributes["role_name"] for car in cars] == ["td3-ego"]
    env.close()


@pytest.mark.parametrize("step_s", [0.1, 0.02])
def test_a_drive_up_a_slope_begins_at_rest_on_the_road(
    start_server: StartServer, tmp_path: Path, step_s: float
) -> None:
    path = tmp_path / "uphill.xodr"
    path.write_text(UPHILL, encoding="utf-8")
    config = EnvironmentConfig(
        time_limit=TimeLimitConfig(constant_s=500), route=RouteConfig(min_length_m=60, max_length_m=150)
    )
    env = make(start_server(map=str(path)), config, fixed_delta_s=step_s)
    assert env.car is None
    env.reset(seed=1)
    assert env.car is not None
    lowest = env.state.route.start_z_m
    assert start_of(env.state.route).location.z >= lowest + 0.5
    for seed in (2, 3):
        env.reset(seed=seed)
        at_rest = env.session.world.get_snapshot().find(env.car.actor.id)
        assert at_rest.get_velocity().length() == 0.0
        assert at_rest.get_transform().location.z == pytest.approx(env.state.route.start_z_m, abs=0.05)
        assert at_rest.get_transform().rotation.pitch == pytest.approx(np.degrees(np.arctan(0.2)), abs=0.5)
        driver = PidPurePursuit()
        observation, info = env.reset(seed=seed)
        first = env.step(driver.act(observation, env.state))[4]
        assert 0.0 <= first["speed_mps"] < 1.0
        while info["end"] is None:
            observation, _, _, _, info = env.step(driver.act(observation, env.state))
        assert info["end"] == "finished"
    env.close()
