"""What counts as running a red light."""

from __future__ import annotations

import pytest

from agent.config import EnvironmentConfig
from agent.env.car import Motion
from agent.env.episode import Episode, Events
from agent.env.traffic_lights import LightAhead
from tests.unit.agent.test_reward import circuit

N, O, R = LightAhead.NONE, LightAhead.OPEN, LightAhead.RED  # noqa: E741


@pytest.mark.parametrize(
    ("seen", "runs"),
    [
        ([N, R, R, N], 1),
        ([N, R, R, O, N], 0),
        ([N, O, R, N], 1),  # the rear is what counts, as in the leaderboard
        ([N, R, R], 0),
        ([R, N, N, R, N], 2),
        ([N, O, N], 0),
    ],
)
def test_a_red_light_is_run_when_its_place_is_left_while_it_is_red(seen: list[LightAhead], runs: int):
    episode = Episode(circuit(), EnvironmentConfig(), 0.1, Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for frame, light in enumerate(seen):
        episode.advance(Motion(frame + 1, 0.1 * frame, 0.0, 0.0, 1.0, 0.0), (0.0, 0.0), Events(light=light))
    assert episode.info()["red_lights"] == runs
