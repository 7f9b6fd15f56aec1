"""Wheel and pedal follow what is asked of them at their own speed."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from carla_td3.config import ActionRateConfig
from carla_td3.env.actuators import Actuators
from carla_td3.env.observation import vector
from tests.unit.agent.roads import CIRCUIT, state

SECONDS = 0.1


AT_ONCE = ActionRateConfig(steer_range=1.0, lag_s=0.0)


def changed(**values: float) -> ActionRateConfig:
    return AT_ONCE.model_copy(update=values)


def test_a_steering_of_one_turns_the_wheels_by_their_range() -> None:
    actuators = Actuators(changed(steer_range=0.4), SECONDS)
    assert actuators.follow(1.0, 1.0) == (0.4, 1.0)
    assert actuators.applied == (1.0, 1.0)
    assert actuators.follow(-0.5, -1.0) == (-0.2, -1.0)


def test_without_a_limit_the_action_is_applied_as_it_is() -> None:
    actuators = Actuators(AT_ONCE, SECONDS)
    assert actuators.follow(-1.0, 1.0) == (-1.0, 1.0)
    assert actuators.follow(0.3, -0.7) == (0.3, -0.7)


def test_each_moves_no_faster_than_its_rate() -> None:
    actuators = Actuators(changed(steer_per_s=2.0, pedal_per_s=5.0), SECONDS)
    applied = [actuators.follow(0.5, -1.0) for _ in range(4)]
    assert [steer for steer, _ in applied] == pytest.approx([0.2, 0.4, 0.5, 0.5])
    assert [pedal for _, pedal in applied] == pytest.approx([-0.5, -1.0, -1.0, -1.0])


def test_a_lag_takes_the_trembling_off_and_comes_to_what_is_asked() -> None:
    lagging = Actuators(changed(lag_s=0.3), SECONDS)
    share = 1.0 - math.exp(-SECONDS / 0.3)
    assert lagging.follow(0.5, -1.0) == pytest.approx((0.5 * share, -share))
    for _ in range(30):
        lagging.follow(0.5, -1.0)
    assert lagging.applied == pytest.approx((0.5, -1.0), abs=1e-3)
    pedals = [lagging.follow(0.5, -1.0 + 0.2 * (-1) ** step)[1] for step in range(20)]
    changes = [abs(after - before) for before, after in pairwise(pedals)]
    assert max(changes) < 0.4 * 0.3  # of what trembles by 0.4


def test_what_lags_keeps_to_its_limit_and_is_told_to_the_driver() -> None:
    both = Actuators(changed(pedal_per_s=2.0, lag_s=0.3), SECONDS)
    assert both.follow(0.0, -1.0)[1] == pytest.approx(-0.2)


def test_the_vector_ends_with_wheel_and_pedal() -> None:
    rests, drives = vector(state(CIRCUIT), 2.0), vector(state(CIRCUIT), 2.0, (0.25, -0.5))
    np.testing.assert_array_equal(rests[:-2], drives[:-2])
    assert rests[-2:].tolist() == [0.0, 0.0]
    assert drives[-2:].tolist() == [0.25, -0.5]
