"""What counts as running a red light."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import carla
import pytest

from carla_td3.config import EnvironmentConfig
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events
from carla_td3.env.traffic_lights import LightAhead, LightWatch
from tests.unit.agent.test_reward import circuit

N, O, R = LightAhead.NONE, LightAhead.OPEN, LightAhead.RED  # noqa: E741


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
def test_a_red_light_is_run_when_the_rear_goes_over_its_line_while_it_is_red(seen: list[LightAhead], runs: int):
    episode = Episode(circuit(), EnvironmentConfig(), 0.1, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
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


def test_who_stops_with_the_rear_before_the_line_is_still_before_the_light():
    state = carla.TrafficLightState.Red
    light = SimpleNamespace(get_state=lambda: state)
    car = Car()
    watch = LightWatch(SimpleNamespace(answered=contextlib.nullcontext), car)  # type: ignore[arg-type]

    def look(x_m: float) -> LightAhead:
        return watch.look(Motion(0, x_m, 0.0, 0.0, 1.0, 0.0))

    assert look(0.0) is N
    car.light = light
    assert look(5.0) is R
    car.light = None
    assert [look(x_m) for x_m in (10.0, 11.0, 11.4)] == [R, R, R]
    state = carla.TrafficLightState.Green
    assert look(11.4) is O
    assert [look(x_m) for x_m in (11.6, 30.0)] == [N, N]
