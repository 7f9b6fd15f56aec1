"""Running a red light, and which cars' lights may turn red suddenly."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import carla
import pytest

from carla_td3.config import EnvironmentConfig
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events
from carla_td3.env.hazards import NOTHING, Hazards, Light
from carla_td3.env.traffic_lights import LightWatch, can_stop
from tests.unit.agent.roads import CIRCUIT

N, O, R = Light.NONE, Light.GREEN, Light.RED  # noqa: E741


@pytest.mark.parametrize(
    ("seen", "runs"),
    [
        ([N, R, R, N], 1),
        ([N, R, R, O, N], 0),
        ([N, O, R, N], 1),  # when it turned red doesn't count, as in the leaderboard
        ([N, R, R], 0),
        ([R, N, N, R, N], 2),
        ([N, O, N], 0),
    ],
)
def test_a_red_light_is_run_by_the_rear(seen: list[Light], runs: int):
    episode = Episode(CIRCUIT, EnvironmentConfig(), 0.1, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for frame, light in enumerate(seen):
        episode.advance(Motion(frame + 1, 0.1 * frame, 0.0, 0.0, 1.0, 0.0), (0.0, 0.0), Events(light=light))
    assert episode.info()["red_lights"] == runs


class Car:
    """A vehicle whose record says which light it is at."""

    light: SimpleNamespace | None = None

    def is_at_traffic_light(self) -> bool:
        return self.light is not None

    def get_traffic_light(self) -> SimpleNamespace | None:
        return self.light


def test_a_rear_before_the_line_is_before_the_light():
    state = carla.TrafficLightState.Red
    light = SimpleNamespace(get_state=lambda: state)
    car = Car()
    watch = LightWatch(SimpleNamespace(answered=contextlib.nullcontext), car)  # type: ignore[arg-type]

    def look(x_m: float) -> Light:
        return watch.look(Motion(0, x_m, 0.0, 0.0, 1.0, 0.0))

    assert look(0.0) is N
    car.light = light
    assert look(5.0) is R
    car.light = None
    assert [look(x_m) for x_m in (10.0, 11.0, 11.4)] == [R, R, R]
    state = carla.TrafficLightState.Green
    assert look(11.4) is O
    assert [look(x_m) for x_m in (11.6, 30.0)] == [N, N]


@pytest.mark.parametrize(
    ("gap_m", "speed_mps", "expected"),
    [(16.0, 8.0, True), (14.0, 8.0, False), (1.0, 0.0, True), (1.0, 2.0, False), (-1.0, 3.0, False), (5.0, 2.0, True)],
)
def test_a_light_turns_red_only_before_who_can_stop(gap_m: float, speed_mps: float, expected: bool) -> None:
    assert can_stop(Hazards(light=Light.GREEN, light_gap_m=gap_m), speed_mps) is expected
    assert can_stop(NOTHING, speed_mps)
