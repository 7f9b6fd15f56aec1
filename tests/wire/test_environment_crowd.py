"""The environment among cars and people: how many there are, where they walk, and who goes when it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import carla
import numpy as np
import pytest

from carla_td3.config import EnvironmentConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.hazards import Ahead
from carla_td3.env.route import held_out_routes
from carla_td3.env.walkers import Walkers
from tests.conftest import REPOSITORY, Server, serve
from tests.crowd import PATIENCE_S
from tests.wire.conftest import MakeEnv
from tests.wire.crowd_process import NEAR_M

PROCESS = Path(__file__).with_name("crowd_process.py")


@pytest.fixture(scope="module")
def town() -> Iterator[Server]:
    server = serve("Lite02")
    yield server
    server.end()


def among(**traffic: object) -> EnvironmentConfig:
    return EnvironmentConfig(traffic=TrafficConfig.model_validate(traffic))


def people_of(env: DrivingEnv) -> Walkers:
    assert env.scene.walkers is not None
    return env.scene.walkers


def of_a_crowd(env: DrivingEnv) -> list[carla.Actor]:
    return [a for a in env.session.world.get_actors() if a.type_id.startswith(("walker", "controller"))]


def test_a_seed_brings_the_same_to_every_driver(town: Server) -> None:
    ended = subprocess.run(
        [sys.executable, str(PROCESS), str(town.port)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout.splitlines()[-1])
    stopped, driven = outcome["evaluated"]
    assert stopped == driven
    assert len({str(places) for places in stopped.values()}) == 2, "each of the two routes has others of its own"
    cars, people, controllers, suns = (list(column) for column in zip(*outcome["drawn"], strict=True))
    assert len(set(cars)) > 1
    assert set(cars) <= {2, 3, 4, 5, 6}
    assert len(set(people)) > 1
    assert set(people) <= {3, 4, 5, 6, 7, 8}
    assert people == controllers
    assert set(suns) == {45.0, 15.0}
    stood, other, drove = outcome["paired"]
    assert stood == drove
    assert stood[0] != other[0]
    assert outcome["infractions"] == []
    anywhere, near = outcome["away"]
    moved_m = 15.0  # since they came, in the ticks of a reset
    assert max(map(max, anywhere)) > NEAR_M + 2.0 * moved_m
    for drive in near:
        assert len(drive) >= 14, "as many as fit come, wherever the drive begins"
        assert max(drive) <= NEAR_M + moved_m


def test_people_walk_and_are_as_many_as_asked_for(town: Server, make_env: MakeEnv) -> None:
    env = make_env(among(walkers=20), port=town.port)
    env.reset(seed=1)
    starts = {person.id: person.get_location() for person in people_of(env).people}
    for _ in range(80):
        env.session.tick()
    walked = [person.get_location().distance(starts[person.id]) for person in people_of(env).people]
    assert sum(metres > 5.0 for metres in walked) >= 15, walked
    people_of(env).resize(4, (0.0, 0.0))
    env.session.tick()
    assert len(of_a_crowd(env)) == 8
    people_of(env).empty()
    env.session.tick()
    assert not of_a_crowd(env)


def crossings(env: DrivingEnv) -> int:
    """Return how often a walker crosses the route's line before the car, in 30 s on its way."""
    (route,) = held_out_routes(env.planner, env.config.route, 1, seed=3)
    observation, _ = env.reset(options={"route": route, "seed": 7, "continue_after_infractions": True})
    driver, count, end = PidPurePursuit(), 0, None
    before: dict[int, float] = {}
    for _ in range(300):
        if end is None:
            observation, _, _, _, info = env.step(driver.act(observation, env.state))
            end = info["end"]
            there = {person.id: person.get_location() for person in people_of(env).people}
            ahead = Ahead(route, env.state.place.s_m)
            gap, lateral, _ = ahead.project(np.array([(place.x, place.y) for place in there.values()]))
            sides = {i: side for i, at, side in zip(there, gap, lateral, strict=True) if -9 < at < 50 and abs(side) < 9}
            count += sum(bool(before[i] * side < 0.0) for i, side in sides.items() if i in before)
            before = sides
    env.close()
    return count


def test_people_step_out_before_the_car_where_asked_for(town: Server, make_env: MakeEnv) -> None:
    walkers = {"walkers": 150, "walkers_crossing": 1.0, "lights": True}
    never, always = (
        crossings(make_env(among(walkers_step_out=share, **walkers), port=town.port)) for share in (0.0, 1.0)
    )
    assert always >= never + 2


@pytest.mark.parametrize(
    ("kind", "after"), [("walker", "walker"), ("walker", "controller"), ("controller", "controller")]
)
def test_people_who_vanish_before_they_set_out_are_left_out(
    town: Server, make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch, kind: str, after: str
) -> None:
    other = carla.Client("127.0.0.1", town.port)
    applied, newest = Walkers._applied, dict[str, int | None]()

    def destroyed_by_another(walkers: Walkers, batch: list[object]) -> list[int | None]:
        ids = applied(walkers, batch)
        if ids and "gone" not in newest:
            spawned = other.get_world().get_actor(ids[0]).type_id.split(".")[0]
            newest[spawned] = ids[0]
            if spawned == after:
                newest["gone"] = newest[kind]
                (reply,) = other.apply_batch_sync([carla.command.DestroyActor(newest[kind])], False)
                assert not reply.has_error()
        return ids

    monkeypatch.setattr(Walkers, "_applied", destroyed_by_another)
    env = make_env(among(walkers=6), port=town.port)
    env.reset(seed=1)
    assert newest.keys() >= {"gone"}
    assert len(people_of(env).people) == 5
    env.session.tick()
    assert sorted(actor.type_id.split(".")[0] for actor in of_a_crowd(env)) == ["controller"] * 5 + ["walker"] * 5
    assert env.step(np.zeros(2, np.float32))[4]["end"] is None
    env.reset()
    assert len(people_of(env).people) == 6


def test_people_that_a_dead_process_left_are_removed(town: Server, make_env: MakeEnv) -> None:
    gone = make_env(among(walkers=6), port=town.port)
    gone.reset(seed=1)
    gone._forget_simulator()
    assert gone.session._claim is not None
    gone.session._claim.release()  # as the kernel does
    env = make_env(among(), port=town.port)
    env.reset(seed=1)
    assert not of_a_crowd(env)
