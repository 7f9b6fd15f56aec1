"""The environment against a real carla-lite, through the real client."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

import carla
import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from carla_td3.collector.warm_up import warmup_action
from carla_td3.config import ActionRateConfig, EnvironmentConfig, RewardConfig, SimulatorConfig, TimeLimitConfig
from carla_td3.env import hazards
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.route import Route, held_out_routes
from carla_td3.env.surroundings import Surroundings
from carla_td3.env.traffic_lights import LightWatch
from carla_td3.evaluation.drivers import Driver, RandomDriver, Stop
from carla_td3.evaluation.routes import completed
from carla_td3.evaluation.video import record
from tests.conftest import Server, StartServer

CONFIG = EnvironmentConfig()


@pytest.fixture
def env(module_server: Server) -> Iterator[DrivingEnv]:
    made = make(module_server.port)
    yield made
    made.close()


def make(port: int, config: EnvironmentConfig = CONFIG, seed: int = 0, **simulator: Any) -> DrivingEnv:
    address = SimulatorConfig(host="127.0.0.1", port=port, **{"patience_s": 60.0, **simulator})
    wrapped = gymnasium.make("CarlaTD3/Driving-v0", config=config, simulator=address, seed=seed)
    assert isinstance(wrapped.unwrapped, DrivingEnv)
    return wrapped.unwrapped


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


@pytest.mark.filterwarnings("error")
def test_gymnasiums_checker_passes(env: DrivingEnv) -> None:
    check_env(env, skip_render_check=True)


def test_at_reset_the_car_stands_on_the_line_and_the_stack_repeats_one_frame(env: DrivingEnv) -> None:
    for route in routes(env, 4):
        observation, info = env.reset(options={"route": route})
        np.testing.assert_allclose(observation["vector"][:3], 0.0, atol=1e-4)
        assert (observation["image"] == observation["image"][0]).all()
        assert observation["image"].std() > 5.0
        assert info["end"] is None
        assert info["route_completion"] == pytest.approx(0.0, abs=1e-3)


def test_the_first_image_after_a_reset_shows_the_new_place(env: DrivingEnv) -> None:
    first, second = routes(env, 2)
    views = [env.reset(options={"route": route})[0]["image"][3] for route in (first, second, first)]
    assert (views[0] == views[2]).all()
    assert (views[0] != views[1]).mean() > 0.2


def test_every_image_is_its_own_ticks(env: DrivingEnv) -> None:
    """The car moves on at every step, so an image that came late would equal the one before it."""
    observation, _ = env.reset(options={"route": routes(env, 1)[0]})
    driver = PidPurePursuit()
    for step in range(60):
        frame = env.frame
        observation, *_ = env.step(driver.act(observation, env.state))
        assert env.frame == frame + 1
        if step > 5:
            assert (observation["image"][3] != observation["image"][2]).any()


def test_drivers_by_rules_are_told_where_a_wheel_that_lags_is(module_server: Server) -> None:
    env = make(module_server.port, EnvironmentConfig(action_rate=ActionRateConfig(lag_s=0.4)))
    try:
        env.reset()
        assert env.state.wheel == 0.0
        env.step(action(0.5, 0.0))
        assert env.state.wheel == pytest.approx(0.5 * 0.5 * (1.0 - math.exp(-env.session.config.fixed_delta_s / 0.4)))
    finally:
        env.close()


@pytest.mark.parametrize("form", ["sum", "product"])
def test_a_task_without_cars_people_and_lights_looks_for_none(
    module_server: Server, monkeypatch: pytest.MonkeyPatch, form: Literal["sum", "product"]
) -> None:
    def looked(*_: object) -> NoReturn:
        raise AssertionError("the step looked for what the task doesn't have")

    for owner, name in (
        (hazards, "hazards"),
        (hazards, "target_speed"),
        (hazards, "time_to_collision"),
        (Surroundings, "world"),
        (LightWatch, "look"),
    ):
        monkeypatch.setattr(owner, name, looked)
    env = make(module_server.port, EnvironmentConfig(reward=RewardConfig(form=form)))
    try:
        env.reset(options={"route": routes(env, 1)[0]})
        for _ in range(20):
            *_, info = env.step(action(0.0, 0.6))
        assert info["speed_mps"] > 1.0
        assert info["reward_terms"]["progress"] > 0.0
    finally:
        env.close()


def test_an_observation_is_not_overwritten_by_later_steps(env: DrivingEnv) -> None:
    observation, _ = env.reset()
    kept = {key: value.copy() for key, value in observation.items()}
    for _ in range(5):
        env.step(action(0.0, 1.0))
    for key, value in observation.items():
        assert (value == kept[key]).all()


def test_the_same_seed_gives_the_same_episode_bit_for_bit_on_a_fresh_server(start_server: StartServer) -> None:
    digests = []
    for _ in range(2):
        env = make(start_server(seed=3).port)
        digests.append(episode_digest(env, seed=5))
        env.close()
    assert digests[0] == digests[1]


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


def test_a_time_limit_truncates_and_does_not_terminate(start_server: StartServer) -> None:
    env = make(start_server().port, EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=2)))
    env.reset()
    assert until_end(env, action(0.0, 0.2))[:2] == (False, True)
    env.close()


def test_standing_still_is_truncated_as_blocked(env: DrivingEnv) -> None:
    env.reset()
    terminated, truncated, info = until_end(env, action(0.0, -1.0))
    assert (terminated, truncated, info["end"]) == (False, True, "blocked")


def test_leaving_the_road_terminates_and_counts_lines_crossed(env: DrivingEnv) -> None:
    env.reset(seed=1)  # one beside whose start no post stands
    terminated, _, info = until_end(env, action(1.0, 0.5))
    assert terminated
    assert info["off_road"]
    assert not info["success"]
    assert info["lane_invasions"] >= 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action(0.0, 0.0))


def test_a_collision_terminates_and_does_not_reach_into_the_next_episode(env: DrivingEnv) -> None:
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


def driven(env: DrivingEnv, driver: Driver, route: Route) -> tuple[float, int, dict[str, Any]]:
    observation, info = env.reset(options={"route": route})
    total, steps = 0.0, 0
    while info["end"] is None:
        observation, reward, _, _, info = env.step(driver.act(observation, env.state))
        total, steps = total + reward, steps + 1
    return total, steps, info


def test_standing_still_is_worth_less_than_random_driving_and_far_less_than_driving_well(
    start_server: StartServer,
) -> None:
    """If it were worth more than trying, nothing would ever be learned.

    Compared a step: drives end at different times, and where one is cut short its value is bootstrapped.
    """
    env = make(start_server().port, EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=100)))
    drivers: dict[str, Driver] = {
        "stop": Stop(),
        "random": RandomDriver(np.random.default_rng(0)),
        "pid": PidPurePursuit(),
    }
    chosen = routes(env, 4)
    # By training's rules: an evaluation's drives go on after an infraction, and longer.
    drives = {name: [driven(env, driver, route) for route in chosen] for name, driver in drivers.items()}
    worth = {
        name: sum(reward for reward, _, _ in each) / sum(steps for _, steps, _ in each) for name, each in drives.items()
    }
    assert worth["stop"] < worth["random"] < 0.0 < worth["pid"]
    assert worth["pid"] > worth["stop"] + 0.8
    assert all(info["success"] and not info["collision"] for _, _, info in drives["pid"])
    assert all(info["route_completion"] < 0.01 for _, _, info in drives["stop"])
    env.close()


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


@pytest.mark.long
def test_stable_baselines3_can_train_on_it(env: DrivingEnv) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=1, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(128)
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
