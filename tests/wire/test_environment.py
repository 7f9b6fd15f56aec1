"""The environment against a real carla-lite, through the real client."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, Literal, NoReturn

import carla
import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest

from carla_td3.collector.warm_up import warmup_action
from carla_td3.config import ActionRateConfig, EnvironmentConfig, RewardConfig, TimeLimitConfig
from carla_td3.env import hazards
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.route import Route, held_out_routes
from carla_td3.env.surroundings import Surroundings
from carla_td3.env.traffic_lights import LightWatch
from carla_td3.evaluation.drivers import Driver, RandomDriver, StopDriver
from carla_td3.evaluation.routes import completed, steps
from carla_td3.evaluation.video import record
from tests.conftest import StartServer
from tests.wire.conftest import MakeEnv


@pytest.fixture
def env(make_env: MakeEnv) -> DrivingEnv:
    return make_env()


def action(steer: float, pedal: float) -> np.ndarray:
    return np.array((steer, pedal), np.float32)


def routes(env: DrivingEnv, count: int) -> list[Route]:
    return held_out_routes(env.planner, env.config.route, count, seed=1)


def until_end(env: DrivingEnv, driven: np.ndarray, most: int = 600) -> tuple[bool, bool, dict[str, Any]]:
    for _ in range(most):
        _, _, terminated, truncated, info = env.step(driven)
        if terminated or truncated:
            return terminated, truncated, info
    raise AssertionError(f"no end within {most} steps")


def test_a_reset_puts_the_car_on_the_line_and_shows_it_there(env: DrivingEnv) -> None:
    chosen, views = routes(env, 4), []
    for route in (*chosen, chosen[0]):
        observation, info = env.reset(options={"route": route})
        np.testing.assert_allclose(observation["vector"][:3], 0.0, atol=1e-4)
        assert (observation["image"] == observation["image"][0]).all(), "the stack repeats one frame"
        assert (observation["image"][-1:] == env.picture).all()
        assert observation["image"].std() > 5.0
        assert info["end"] is None
        assert info["route_completion"] == pytest.approx(0.0, abs=1e-3)
        views.append(observation["image"][3])
    assert (views[0] == views[-1]).all()
    assert (views[0] != views[1]).mean() > 0.2


def test_every_image_is_its_own_ticks(env: DrivingEnv) -> None:
    """The car moves on at every step, so an image that came late would equal the one before it."""
    observation, _ = env.reset(options={"route": routes(env, 1)[0]})
    driver = PidPurePursuit()
    for step in range(60):
        frame = env.frame
        observation, *_ = env.step(driver.act(observation, env.state))
        assert env.frame == frame + 1
        assert (observation["image"][-1:] == env.picture).all()
        if step > 5:
            assert (observation["image"][3] != observation["image"][2]).any()


def test_drivers_by_rules_are_told_where_a_lagging_wheel_is(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentConfig(action_rate=ActionRateConfig(lag_s=0.4)))
    env.reset()
    assert env.state.wheel == 0.0
    env.step(action(0.5, 0.0))
    assert env.state.wheel == pytest.approx(0.5 * 0.5 * (1.0 - math.exp(-env.session.config.fixed_delta_s / 0.4)))


@pytest.mark.parametrize("form", ["sum", "product"])
def test_a_task_without_others_looks_for_none(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch, form: Literal["sum", "product"]
) -> None:
    def looked(*_: object) -> NoReturn:
        raise AssertionError("the step looked for what the task doesn't have")

    for owner, *names in (
        (hazards, "hazards", "target_speed", "time_to_collision"),
        (Surroundings, "world"),
        (LightWatch, "look"),
    ):
        for name in names:
            monkeypatch.setattr(owner, str(name), looked)
    env = make_env(EnvironmentConfig(reward=RewardConfig(form=form)))
    env.reset(options={"route": routes(env, 1)[0]})
    for _ in range(20):
        *_, info = env.step(action(0.0, 0.6))
    assert info["speed_mps"] > 1.0
    assert info["reward_terms"]["progress"] > 0.0


def test_an_observation_is_not_overwritten_by_later_steps(env: DrivingEnv) -> None:
    observation, _ = env.reset()
    kept = {key: value.copy() for key, value in observation.items()}
    for _ in range(5):
        env.step(action(0.0, 1.0))
    for key, value in observation.items():
        assert (value == kept[key]).all()


def test_the_same_seed_gives_the_same_episode_bit_for_bit(start_server: StartServer, make_env: MakeEnv) -> None:
    first, second = (episode_digest(make_env(port=start_server(seed=3).port), seed=5) for _ in range(2))
    assert first == second


def episode_digest(env: DrivingEnv, seed: int) -> str:
    digest = hashlib.sha256()
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    driven = action(0.0, 0.0)
    for _ in range(200):
        driven = warmup_action(rng, driven, observation["vector"], EnvironmentConfig())
        observation, reward, terminated, truncated, info = env.step(driven)
        digest.update(observation["image"].tobytes() + observation["vector"].tobytes())
        digest.update(repr((reward, terminated, truncated, info)).encode())
        if terminated or truncated:
            observation, _ = env.reset()
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("limit_s", "pedal", "end"), [(2.0, 0.2, "time"), (60.0, -1.0, "blocked")], ids=["time limit", "standing still"]
)
def test_what_breaks_a_drive_off_truncates_it(make_env: MakeEnv, limit_s: float, pedal: float, end: str) -> None:
    env = make_env(EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=limit_s)))
    env.reset()
    terminated, truncated, info = until_end(env, action(0.0, pedal))
    assert (terminated, truncated, info["end"]) == (False, True, end)


def test_leaving_the_road_terminates(env: DrivingEnv) -> None:
    env.reset(seed=1)  # one beside whose start no post stands
    terminated, _, info = until_end(env, action(1.0, 0.5))
    assert terminated
    assert info["off_road"]
    assert not info["success"]
    assert info["lane_invasions"] >= 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action(0.0, 0.0))


def test_a_drive_can_leave_lane_invasions_uncounted_and_the_next_counts_them(env: DrivingEnv) -> None:
    counted = []
    for options in ({"lane_invasions": False}, {}, {"lane_invasions": False}):
        env.reset(seed=1, options=options)
        *_, info = until_end(env, action(1.0, 0.5))
        assert info["off_road"]
        counted.append(info["lane_invasions"] >= 1)
    assert counted == [False, True, False]


def test_a_collision_ends_its_own_episode_only(env: DrivingEnv) -> None:
    route = routes(env, 1)[0]
    env.reset(options={"route": route})
    world = env.session.world
    x, y = route.points[25]
    pose = carla.Transform(
        carla.Location(float(x), float(y), route.start_z_m + 0.3),
        carla.Rotation(yaw=math.degrees(float(route.yaw[25]))),
    )
    obstacle = world.spawn_actor(world.get_blueprint_library().find("vehicle.tesla.model3"), pose)
    terminated, _, info = until_end(env, action(0.0, 1.0))
    assert terminated
    assert info["end"] == "collision"
    assert info["collision_with"] == "vehicle"
    assert info["reward_terms"]["collision"] < 0.0
    obstacle.destroy()
    _, info = env.reset(options={"route": route})
    assert not info["collision"]
    assert info["lane_invasions"] == 0
    for _ in range(5):
        _, _, _, _, info = env.step(action(0.0, 0.3))
    assert info["end"] is None


def test_a_step_reports_what_the_contract_names(env: DrivingEnv) -> None:
    env.reset()
    _, reward, _, _, info = env.step(action(0.0, 0.5))
    names = "reward_terms route_completion speed_mps collision off_road success simulator_lost lane_invasions end"
    assert {*names.split(), "distance_m", "jerk_mps3"} <= set(info)
    assert reward == pytest.approx(sum(info["reward_terms"].values()))


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (0.0, math.inf)])
def test_an_action_that_is_no_number_is_refused(env: DrivingEnv, bad: tuple[float, float]) -> None:
    env.reset()
    with pytest.raises(ValueError, match="two finite numbers"):
        env.step(action(*bad))


def test_warmup_really_moves_the_car(env: DrivingEnv) -> None:
    rng, driven = np.random.default_rng(0), action(0.0, 0.0)
    moved = []
    for _ in range(5):
        observation, _ = env.reset()
        for _ in range(100):
            driven = warmup_action(rng, driven, observation["vector"], EnvironmentConfig())
            observation, _, terminated, truncated, info = env.step(driven)
            if terminated or truncated:
                break
        moved.append(info["distance_m"])
    assert np.mean(moved) > 20.0


def worth(env: DrivingEnv, driver: Driver, chosen: list[Route]) -> tuple[float, list[dict[str, Any]]]:
    """Return the reward a step of some drives by training's rules, and how each ended."""
    drives = [list(steps(env, driver, env.reset(options={"route": route}))) for route in chosen]
    return float(np.mean([step.reward for drive in drives for step in drive])), [drive[-1].info for drive in drives]


def test_standing_is_worth_less_than_random_driving(make_env: MakeEnv) -> None:
    """And that far less than driving well: if it were worth more than trying, nothing would ever be learned.

    Compared a step: drives end at different times, and where one is cut short its value is bootstrapped.
    """
    env = make_env(EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=100)))
    chosen = routes(env, 4)
    stop, stood = worth(env, StopDriver(), chosen)
    random, _ = worth(env, RandomDriver(np.random.default_rng(0)), chosen)
    pid, drove = worth(env, PidPurePursuit(), chosen)
    assert stop < random < 0.0 < pid
    assert pid > stop + 0.8
    assert all(info["success"] and not info["collision"] for info in drove)
    assert all(info["route_completion"] < 0.01 for info in stood)


def test_a_video_shows_the_drive_and_leaves_no_camera(env: DrivingEnv, tmp_path: Path) -> None:
    path = tmp_path / "videos" / "drive.mp4"
    film = record(env, PidPurePursuit(), routes(env, 2), path, min_seconds=3, min_metres=10, max_seconds=6)
    summary = completed(film)
    assert summary.seconds == pytest.approx(6.0)
    assert summary.metres > 10.0
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    pictures = [np.frombuffer(picture, np.uint8) for picture in reader]
    assert meta["codec"] == "h264"
    assert meta["size"] == (640, 360)
    assert len(pictures) == 60
    assert (pictures[10] != pictures[50]).mean() > 0.2
    env.session.tick()
    assert len(env.session.world.get_actors().filter("sensor.camera.rgb")) == 1
    assert list(path.parent.iterdir()) == [path]
