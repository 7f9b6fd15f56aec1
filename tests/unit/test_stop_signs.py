"""Passages of stop signs, found in recorded rows."""

from __future__ import annotations

import numpy as np
import pytest
import stop_signs
from stop_signs import Passage

NEAR = [0.8, 0.9, 0.95, 0.95]


@pytest.mark.parametrize(
    ("near", "speed_mps", "step", "found"),
    [
        ([*NEAR, 0.0], [5.0, 2.0, 1.0, 0.5, 0.0], [3, 4, 5, 6, 7], [Passage(True, 0.0)]),
        ([*NEAR, 0.0], [5.0, 2.0, 0.5, 1.0, 2.0], [3, 4, 5, 6, 7], [Passage(False, 0.5)]),
        ([*NEAR, 0.0], [5.0, 2.0, 1.0, 0.5, 0.0], [3, 4, 5, 6, 0], []),  # another drive begins
        (NEAR, [5.0, 2.0, 1.0, 0.5], [3, 4, 5, 6], []),  # the recording ends
        ([*NEAR, *NEAR, 0.7], [4.0] * 9, [3, 4, 5, 6, 0, 1, 2, 3, 4], [Passage(False, 4.0)]),
        ([0.9, 0.9, 0.0], [0.0, 1.0, 2.0], [0, 1, 2], []),  # it began there
        ([0.8, 0.7, 0.0], [4.0] * 3, [3, 4, 5], []),
    ],
)
def test_a_car_that_stood_passed_another_rolled(
    near: list[float], speed_mps: list[float], step: list[int], found: list[Passage]
) -> None:
    given = np.array(near, np.float32), np.array(speed_mps, np.float32), np.array(step)
    assert [*stop_signs.passages(*given)] == found


def test_the_driver_s_pedal_is_the_one_that_the_next_row_arrived_by() -> None:
    near = np.array([0.9, 0.96, 0.97, 0.98, 0.96, 0.96, 0.0], np.float32)
    speed_mps = np.array([2.0, 1.0, 0.0, 1.0, 2.0, 1.0, 3.0], np.float32)
    step = np.array([3, 4, 5, 6, 0, 1, 2])  # another drive begins at the fifth row
    arrived_by = np.array([0.9, 0.9, 0.1, 0.9, 0.9, 0.2, 0.3], np.float32)
    advised = np.array([9.0, -0.5, 9.0, 9.0, -0.7, -0.9, 9.0], np.float32)
    assert stop_signs.pedals(near, speed_mps, step, arrived_by, advised) == pytest.approx((0.2, -0.7))
    assert all(np.isnan(stop_signs.pedals(near * 0, speed_mps, step, arrived_by, advised)))
