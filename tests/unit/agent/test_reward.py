"""The guards of the reward: what must never pay."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from carla_td3.config import EnvironmentConfig, RewardConfig, TimeLimitConfig
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events
from carla_td3.env.hazards import NOTHING, target_speed, time_to_collision
from carla_td3.env.reward import RewardStep, terms
from carla_td3.env.route import Route
from carla_td3.env.sensors import Collision
from tests.unit.agent.roads import CIRCUIT, pose

CONFIG = RewardConfig()
PRODUCT = RewardConfig(form="product")
SECONDS = 0.1
AT_TARGET = RewardStep(
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


def total(step: RewardStep, config: RewardConfig = CONFIG) -> float:
    return sum(terms(step, config).values())


def driven(route: Route, path: np.ndarray, config: EnvironmentConfig | None = None) -> tuple[float, Episode]:
    """Return of a car moved along ``path`` (n, 3: x, y, yaw), a row a step; ends where the episode does."""
    speed = np.hypot(*np.diff(path[:, :2], axis=0).T) / SECONDS
    start = Motion(0, path[0, 0], path[0, 1], path[0, 2], 0.0, 0.0)
    episode = Episode(CIRCUIT, config or EnvironmentConfig(), SECONDS, start)
    gained = 0.0
    for k, (x, y, yaw) in enumerate(path[1:], start=1):
        velocity = speed[k - 1] * math.cos(yaw), speed[k - 1] * math.sin(yaw)
        gained += episode.advance(Motion(k, x, y, yaw, *velocity), (0.0, 0.0), Events())
        if episode.end is not None:
            break
    return gained, episode


def along(route: Route, speed_mps: float, right_m: float = 0.0) -> np.ndarray:
    s = np.arange(0.0, route.length_m, speed_mps * SECONDS)
    return np.array([pose(route, each, right_m) for each in s])


@pytest.mark.parametrize("term", RewardConfig.model_fields.keys())
def test_a_negative_weight_is_refused(term: str) -> None:
    with pytest.raises(ValidationError):
        RewardConfig(**{term: -1.0})


FAULTS: list[dict[str, Any]] = [
    *({"lateral": 0.8}, {"lateral": -0.8}, {"heading_error": 0.5}, {"heading_error": -0.5}, {"action_change": 1.0}),
    *({"collision": True}, {"red_light": True}, {"off_road": True}, {"speed_mps": CONFIG.target_speed_mps * 1.5}),
]
OF_SUM: list[dict[str, Any]] = [{"progress_m": 0.0}, {"progress_m": -0.5}, {"speed_mps": 0.0, "progress_m": 0.0}]
OF_PRODUCT: list[dict[str, Any]] = [
    *({"allowed_mps": 4.0}, {"ttc_s": 1.0}, {"gained_m": 0.2}, {"blocked": True}),
]


@pytest.mark.parametrize(
    ("config", "worse"),
    [*((CONFIG, fault) for fault in FAULTS + OF_SUM), *((PRODUCT, fault) for fault in FAULTS + OF_PRODUCT)],
    ids=str,
)
def test_every_fault_lowers_the_reward(config: RewardConfig, worse: dict[str, Any]) -> None:
    assert total(replace(AT_TARGET, **worse), config) < total(AT_TARGET, config) == config.progress


STANDING = replace(AT_TARGET, progress_m=0.0, gained_m=0.0, speed_mps=0.0)


def test_waiting_where_it_is_right_costs_nothing_in_either_form() -> None:
    for allowed_mps in (0.0, 3.0):
        waits = replace(STANDING, allowed_mps=allowed_mps)
        assert total(waits) == total(waits, PRODUCT) == total(STANDING, PRODUCT) == 0.0
    assert total(STANDING) == -CONFIG.idle


@given(st.floats(0.0, 30.0), st.sampled_from([CONFIG, PRODUCT]))
def test_nothing_ahead_changes_no_reward(speed_mps: float, config: RewardConfig) -> None:
    unseen = replace(AT_TARGET, speed_mps=speed_mps)
    allowed_mps, ttc_s = target_speed(NOTHING, config.target_speed_mps), time_to_collision(NOTHING, speed_mps)
    assert terms(replace(unseen, allowed_mps=allowed_mps, ttc_s=ttc_s), config) == terms(unseen, config)


def test_only_what_must_not_happen_is_worth_less_than_standing() -> None:
    bad = replace(AT_TARGET, lateral=2.0, heading_error=1.5, action_change=4.0, allowed_mps=0.0, ttc_s=0.0)
    assert 0.0 <= total(bad, PRODUCT) < 0.1 * PRODUCT.progress
    assert total(replace(bad, red_light=True), PRODUCT) < 0.0


STEPS = st.builds(
    RewardStep,
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
def test_only_progress_and_the_finish_ever_pay(step: RewardStep, config: RewardConfig) -> None:
    for name, value in terms(step, config).items():
        assert value <= (CONFIG.progress if name == "progress" else CONFIG.finish if name == "finish" else 0.0)


@given(STEPS, st.sampled_from(["lateral", "heading_error", "action_change", "speed_mps"]), st.floats(1.0, 3.0))
def test_no_fault_of_the_product_pays_when_it_grows(step: RewardStep, fault: str, factor: float) -> None:
    worse = replace(step, **{fault: getattr(step, fault) * factor})
    assert terms(worse, PRODUCT)["progress"] <= terms(step, PRODUCT)["progress"] + 1e-9


def test_each_term_follows_its_own_weight() -> None:
    bad = replace(AT_TARGET, speed_mps=12.0, lateral=1.0, heading_error=1.0, action_change=1.0, collision=True)
    for name in terms(bad, CONFIG):
        off = CONFIG.model_copy(update={name: 0.0})
        assert terms(bad, off)[name] == 0.0
        assert {k: v for k, v in terms(bad, off).items() if k != name} == {
            k: v for k, v in terms(bad, CONFIG).items() if k != name
        }


def test_an_early_crash_returns_less_than_driving_on() -> None:
    whole, episode = driven(CIRCUIT, along(CIRCUIT, 8.0))
    assert episode.end == "finished"
    crash = Episode(CIRCUIT, EnvironmentConfig(), SECONDS, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    crashed = crash.advance(Motion(1, 0.8, 0.0, 0.0, 8.0, 0.0), (0.0, 0.0), Events((Collision(1, "static"),)))
    assert crashed < 0.0 < whole


def test_standing_still_returns_less_than_crawling() -> None:
    stood, episode = driven(CIRCUIT, np.zeros((300, 3)))
    crawled, _ = driven(CIRCUIT, along(CIRCUIT, 1.0))
    assert episode.end == "blocked"
    assert stood < 0.0 < crawled


@pytest.mark.parametrize("form", ["sum", "product"])
def test_a_whole_drive_pays_the_route_and_no_more(form: Literal["sum", "product"]) -> None:
    """However the car goes (inside of the curve, outside, back and forth), arc length is paid once."""
    reward = RewardConfig(
        form=form, idle=0, overspeed=0, lateral=0, heading=0, comfort=0, collision=0, off_road=0, finish=0
    )
    config = EnvironmentConfig(reward=reward, time_limit=TimeLimitConfig(constant_s=500))
    most = CIRCUIT.length_m / (CONFIG.target_speed_mps * SECONDS)
    line = along(CIRCUIT, 6.0)
    back_and_forth = np.concatenate([line[:100], line[100:40:-1], line[40:]])
    for path in (line, along(CIRCUIT, 6.0, right_m=2.0), along(CIRCUIT, 6.0, right_m=-2.0), back_and_forth):
        gained, episode = driven(CIRCUIT, path, config)
        assert episode.end == "finished"
        assert 0.9 * most < gained <= most


def test_circling_on_the_spot_does_not_pay() -> None:
    angle = np.linspace(0.0, 20 * math.pi, 1000)
    circles = np.column_stack([1.5 * np.sin(angle), 1.5 * (1 - np.cos(angle)), angle])
    gained, episode = driven(CIRCUIT, circles, EnvironmentConfig(off_road_m=10.0))
    assert gained < 0.0
    assert episode.end == "blocked"


def test_speeding_pays_less_than_the_target_speed() -> None:
    at_target, _ = driven(CIRCUIT, along(CIRCUIT, CONFIG.target_speed_mps))
    speeding, _ = driven(CIRCUIT, along(CIRCUIT, 2 * CONFIG.target_speed_mps))
    assert speeding < at_target


def test_an_infraction_in_the_last_step_is_no_success() -> None:
    path = along(CIRCUIT, 8.0)
    episode = Episode(CIRCUIT, EnvironmentConfig(), SECONDS, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for k, (x, y, yaw) in enumerate(path[1:], start=1):
        last = math.hypot(x - CIRCUIT.points[-1, 0], y - CIRCUIT.points[-1, 1]) < 2.0
        events = Events((Collision(k, "vehicle"),)) if last else Events()
        episode.advance(Motion(k, x, y, yaw, 8.0, 0.0), (0.0, 0.0), events)
        if episode.end is not None:
            break
    info = episode.info()
    assert info["route_completion"] == pytest.approx(1.0, abs=0.02)
    assert info["end"] == "collision"
    assert not info["success"]


@pytest.mark.parametrize(
    ("right_m", "limit_s", "end"), [(-3.5, 60, "off_road"), (0.0, 5, "time")], ids=["wrong lane", "time"]
)
def test_what_else_ends_a_drive(right_m: float, limit_s: float, end: str) -> None:
    config = EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=limit_s))
    _, episode = driven(CIRCUIT, along(CIRCUIT, 6.0, right_m), config)
    assert episode.end == end
    assert episode.time_s <= limit_s
