"""The guards of the reward: what must never pay."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from carla_td3.config import EnvironmentConfig, RewardConfig, TimeLimitConfig
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events
from carla_td3.env.hazards import NOTHING, target_speed, time_to_collision
from carla_td3.env.reward import Step, terms
from carla_td3.env.route import Route
from carla_td3.env.sensors import Collision

CONFIG = RewardConfig()
PRODUCT = RewardConfig(form="product")
SECONDS = 0.1
AT_TARGET = Step(
    seconds=SECONDS,
    progress_m=CONFIG.target_speed_mps * SECONDS,
    gained_m=CONFIG.target_speed_mps * SECONDS,
    speed_mps=CONFIG.target_speed_mps,
    lateral=0.0,
    heading_error=0.0,
    action_change=0.0,
    collision=False,
    off_road=False,
    finished=False,
)


def total(step: Step, config: RewardConfig = CONFIG) -> float:
    return sum(terms(step, config).values())


def circuit(radius_m: float = 40.0) -> Route:
    angle = np.linspace(0.0, 1.5 * math.pi, 190)
    flat = np.column_stack([radius_m * np.sin(angle), radius_m * (1 - np.cos(angle)), np.zeros(190)])
    return Route.through("circuit", flat, np.full(190, 2.0), 0)


def driven(route: Route, path: np.ndarray, config: EnvironmentConfig | None = None) -> tuple[float, Episode]:
    """Return of a car moved along ``path`` (n, 3: x, y, yaw), a row a step; ends where the episode does."""
    speed = np.hypot(*np.diff(path[:, :2], axis=0).T) / SECONDS
    start = Motion(0, path[0, 0], path[0, 1], path[0, 2], 0.0, 0.0)
    episode = Episode(route, config or EnvironmentConfig(), SECONDS, start)
    gained = 0.0
    for k, (x, y, yaw) in enumerate(path[1:], start=1):
        velocity = speed[k - 1] * math.cos(yaw), speed[k - 1] * math.sin(yaw)
        gained += episode.advance(Motion(k, x, y, yaw, *velocity), (0.0, 0.0), Events())
        if episode.end is not None:
            break
    return gained, episode


def along(route: Route, speed_mps: float, right_m: float = 0.0) -> np.ndarray:
    s = np.arange(0.0, route.length_m, speed_mps * SECONDS)
    yaw = np.interp(s, route.s, route.yaw)
    x = np.interp(s, route.s, route.points[:, 0]) - right_m * np.sin(yaw)
    y = np.interp(s, route.s, route.points[:, 1]) + right_m * np.cos(yaw)
    return np.column_stack([x, y, yaw])


@pytest.mark.parametrize("term", RewardConfig.model_fields.keys())
def test_a_negative_weight_is_refused(term: str) -> None:
    with pytest.raises(ValidationError):
        RewardConfig(**{term: -1.0})


@pytest.mark.parametrize(
    "worse",
    [
        {"collision": True},
        {"off_road": True},
        {"lateral": 0.8},
        {"lateral": -0.8},
        {"heading_error": 0.5},
        {"heading_error": -0.5},
        {"action_change": 1.0},
        {"speed_mps": CONFIG.target_speed_mps * 1.5},
        {"progress_m": 0.0},
        {"progress_m": -0.5},
        {"speed_mps": 0.0, "progress_m": 0.0},
    ],
    ids=str,
)
def test_every_fault_lowers_the_reward(worse: dict[str, Any]) -> None:
    assert total(replace(AT_TARGET, **worse)) < total(AT_TARGET)


@pytest.mark.parametrize(
    "worse",
    [
        {"lateral": 0.8},
        {"lateral": -0.8},
        {"heading_error": 0.5},
        {"action_change": 1.0},
        {"allowed_mps": 4.0},
        {"speed_mps": CONFIG.target_speed_mps * 1.5},
        {"ttc_s": 1.0},
        {"gained_m": 0.2},
        {"collision": True},
        {"red_light": True},
        {"off_road": True},
        {"blocked": True},
    ],
    ids=str,
)
def test_every_fault_lowers_the_product(worse: dict[str, Any]) -> None:
    assert total(replace(AT_TARGET, **worse), PRODUCT) < total(AT_TARGET, PRODUCT) == PRODUCT.progress


STANDING = replace(AT_TARGET, progress_m=0.0, gained_m=0.0, speed_mps=0.0)


def test_waiting_where_it_is_right_costs_nothing_in_either_form() -> None:
    for allowed_mps in (0.0, 3.0):
        waits = replace(STANDING, allowed_mps=allowed_mps)
        assert total(waits) == total(waits, PRODUCT) == total(STANDING, PRODUCT) == 0.0
    assert total(STANDING) == -CONFIG.idle


@given(st.floats(0.0, 30.0), st.sampled_from([CONFIG, PRODUCT]))
def test_where_nothing_lies_ahead_a_step_is_worth_what_it_is_without_a_look(
    speed_mps: float, config: RewardConfig
) -> None:
    unseen = replace(AT_TARGET, speed_mps=speed_mps)
    allowed_mps, ttc_s = target_speed(NOTHING, config.target_speed_mps), time_to_collision(NOTHING, speed_mps)
    assert terms(replace(unseen, allowed_mps=allowed_mps, ttc_s=ttc_s), config) == terms(unseen, config)


def test_driving_badly_is_never_worth_less_than_standing_in_the_product_but_running_a_red_light_is() -> None:
    bad = replace(AT_TARGET, lateral=2.0, heading_error=1.5, action_change=4.0, allowed_mps=0.0, ttc_s=0.0)
    assert 0.0 <= total(bad, PRODUCT) < 0.1 * PRODUCT.progress
    assert total(replace(bad, red_light=True), PRODUCT) < 0.0


def test_the_product_pays_a_metre_of_the_route_once() -> None:
    route = circuit()
    line = along(route, 6.0)
    back_and_forth = np.concatenate([line[:100], line[100:40:-1], line[40:]])
    only = EnvironmentConfig(
        reward=RewardConfig(form="product", lateral=0, heading=0, comfort=0, overspeed=0, finish=0),
        time_limit=TimeLimitConfig(constant_s=500),
    )
    gained, episode = driven(route, back_and_forth, only)
    assert episode.end == "finished"
    assert gained <= route.length_m / (CONFIG.target_speed_mps * SECONDS)


STEPS = st.builds(
    Step,
    seconds=st.just(SECONDS),
    progress_m=st.floats(-3, 3),
    gained_m=st.floats(0, 3),
    speed_mps=st.floats(0, 40),
    lateral=st.floats(-2, 2),
    heading_error=st.floats(-3.1, 3.1),
    action_change=st.floats(0, 4),
    collision=st.booleans(),
    off_road=st.booleans(),
    finished=st.booleans(),
    allowed_mps=st.floats(0, 8),
    ttc_s=st.floats(0, 10),
    red_light=st.booleans(),
    blocked=st.booleans(),
)


@given(STEPS, st.sampled_from([CONFIG, PRODUCT]))
def test_only_progress_and_the_finish_ever_pay(step: Step, config: RewardConfig) -> None:
    for name, value in terms(step, config).items():
        assert value <= (CONFIG.progress if name == "progress" else CONFIG.finish if name == "finish" else 0.0)


@given(STEPS, st.sampled_from(["lateral", "heading_error", "action_change", "speed_mps"]), st.floats(1.0, 3.0))
def test_no_fault_of_the_product_pays_when_it_grows(step: Step, fault: str, factor: float) -> None:
    worse = replace(step, **{fault: getattr(step, fault) * factor})
    assert terms(worse, PRODUCT)["progress"] <= terms(step, PRODUCT)["progress"] + 1e-9


def test_terms_are_named_as_their_weights_and_each_follows_its_own() -> None:
    bad = replace(AT_TARGET, speed_mps=12.0, lateral=1.0, heading_error=1.0, action_change=1.0, collision=True)
    for name in terms(bad, CONFIG):
        off = CONFIG.model_copy(update={name: 0.0})
        assert terms(bad, off)[name] == 0.0
        assert {k: v for k, v in terms(bad, off).items() if k != name} == {
            k: v for k, v in terms(bad, CONFIG).items() if k != name
        }


def test_an_early_crash_returns_less_than_driving_on() -> None:
    route = circuit()
    whole, episode = driven(route, along(route, 8.0))
    assert episode.end == "finished"
    crash = Episode(route, EnvironmentConfig(), SECONDS, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    crashed = crash.advance(Motion(1, 0.8, 0.0, 0.0, 8.0, 0.0), (0.0, 0.0), Events((Collision(1, "static"),)))
    assert crashed < 0.0 < whole


def test_standing_still_returns_less_than_crawling_and_is_truncated_as_blocked() -> None:
    route = circuit()
    stood, episode = driven(route, np.zeros((300, 3)))
    crawled, _ = driven(route, along(route, 1.0))
    assert episode.end == "blocked"
    assert stood < 0.0 < crawled


def test_progress_paid_in_a_whole_drive_is_the_route_and_no_more() -> None:
    """However the car goes (inside of the curve, outside, back and forth), arc length is paid once."""
    route = circuit()
    only_progress = RewardConfig(
        idle=0, overspeed=0, lateral=0, heading=0, comfort=0, collision=0, off_road=0, finish=0
    )
    config = EnvironmentConfig(reward=only_progress, time_limit=TimeLimitConfig(constant_s=500))
    most = route.length_m / (CONFIG.target_speed_mps * SECONDS)
    line = along(route, 6.0)
    back_and_forth = np.concatenate([line[:100], line[100:40:-1], line[40:]])
    for path in (line, along(route, 6.0, right_m=2.0), along(route, 6.0, right_m=-2.0), back_and_forth):
        gained, episode = driven(route, path, config)
        assert episode.end == "finished"
        assert 0.9 * most < gained <= most


def test_circling_on_the_spot_does_not_pay() -> None:
    angle = np.linspace(0.0, 20 * math.pi, 1000)
    circles = np.column_stack([1.5 * np.sin(angle), 1.5 * (1 - np.cos(angle)), angle])
    gained, episode = driven(circuit(), circles, EnvironmentConfig(off_road_m=10.0))
    assert gained < 0.0
    assert episode.end == "blocked"


def test_speeding_pays_less_than_the_target_speed() -> None:
    route = circuit()
    at_target, _ = driven(route, along(route, CONFIG.target_speed_mps))
    speeding, _ = driven(route, along(route, 2 * CONFIG.target_speed_mps))
    assert speeding < at_target


def test_an_infraction_in_the_last_step_is_no_success() -> None:
    route = circuit()
    path = along(route, 8.0)
    episode = Episode(route, EnvironmentConfig(), SECONDS, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for k, (x, y, yaw) in enumerate(path[1:], start=1):
        last = math.hypot(x - route.points[-1, 0], y - route.points[-1, 1]) < 2.0
        events = Events((Collision(k, "vehicle"),)) if last else Events()
        episode.advance(Motion(k, x, y, yaw, 8.0, 0.0), (0.0, 0.0), events)
        if episode.end is not None:
            break
    info = episode.info()
    assert info["route_completion"] == pytest.approx(1.0, abs=0.02)
    assert info["end"] == "collision"
    assert not info["success"]


def test_the_wrong_lane_counts_as_off_road() -> None:
    route = circuit()
    _, episode = driven(route, along(route, 6.0, right_m=-3.5))
    assert episode.end == "off_road"


def test_time_ends_a_drive_that_goes_well() -> None:
    _, episode = driven(circuit(), along(circuit(), 6.0), EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=5)))
    assert (episode.end, episode.steps) == ("time", 50)
