"""Conditions of a drive: drawn from ranges, the same for the same seed, and no draw without a range."""

from __future__ import annotations

import numpy as np
import pytest

from carla_td3.config import WEATHER_BY_DAY, ConfigError, EnvironmentConfig, validate
from carla_td3.env.conditions import Conditions, draw, from_seed


def configured(**environment: object) -> EnvironmentConfig:
    return validate({"environment": environment}, "a test").environment


def test_a_task_without_ranges_takes_nothing_from_the_generator() -> None:
    config = configured(traffic={"vehicles": 3, "walkers": [7, 7]}, weather="WetNoon")
    rng, untouched = np.random.default_rng(1), np.random.default_rng(1)
    assert draw(config, rng) == Conditions(3, 7, "WetNoon")
    assert rng.integers(1 << 30) == untouched.integers(1 << 30)
    assert draw(EnvironmentConfig(), rng) == Conditions(0, 0, None)


def test_every_number_of_a_range_and_every_weather_comes_up() -> None:
    config = configured(traffic={"vehicles": [0, 3], "walkers": [5, 6]}, weather="random")
    rng = np.random.default_rng(0)
    found = [draw(config, rng) for _ in range(300)]
    assert {each.vehicles for each in found} == {0, 1, 2, 3}
    assert {each.walkers for each in found} == {5, 6}
    assert {each.weather for each in found} == set(WEATHER_BY_DAY)


def test_a_seed_gives_every_driver_the_same() -> None:
    config = configured(traffic={"vehicles": [0, 100], "walkers": [0, 100]}, weather=["ClearNoon", "WetSunset"])
    assert from_seed(config, 5) == from_seed(config, 5)
    assert len({from_seed(config, seed) for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"traffic": {"vehicles": [5, 2]}}, r"vehicles is \[5, 2\]: expected a number from 0 to 200, or a range"),
        ({"traffic": {"vehicles": 201}}, "from 0 to 200"),
        ({"traffic": {"vehicles": [0, 150], "walkers": 350}}, "150 vehicles and 350 walkers: expected at most 499"),
        ({"traffic": {"walkers": [0, 401]}}, "from 0 to 400"),
        ({"traffic": {"walkers": "many"}}, "walkers is 'many'"),
        ({"weather": "Nice"}, "weather has 'Nice': expected random or some of ClearNoon, "),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(environment: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        configured(**environment)
