"""Which cars may find their light red of a sudden: those that can still stop."""

from __future__ import annotations

import pytest

from carla_td3.env.hazards import NOTHING, Hazards, Light
from carla_td3.env.traffic_lights import can_stop


@pytest.mark.parametrize(
    ("gap_m", "speed_mps", "expected"),
    [(16.0, 8.0, True), (14.0, 8.0, False), (1.0, 0.0, True), (1.0, 2.0, False), (-1.0, 3.0, False), (5.0, 2.0, True)],
)
def test_a_light_turns_red_only_before_who_can_stop(gap_m: float, speed_mps: float, expected: bool) -> None:
    assert can_stop(Hazards(light=Light.GREEN, light_gap_m=gap_m), speed_mps) is expected


def test_where_no_light_is_ahead_none_is_in_the_way() -> None:
    assert can_stop(NOTHING, 8.0)
