"""The cause that ``benchmarks/causes.py`` names for a failed drive, from its last rows."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from causes import Other, Row, cause, in_view, read

CAR = {"is_person": False, "half_length_m": 2.3, "half_width_m": 1.0}
PERSON = {"is_person": True, "half_length_m": 0.2, "half_width_m": 0.2}


def other(**given: Any) -> Other:
    """Return a person or car, by default straight ahead and standing."""
    plain = {"id": 1, "ahead_m": 3.0, "right_m": 0.0, "turned_rad": 0.0, "forward_mps": 0.0, "rightward_mps": 0.0}
    return Other(**{**plain, **given})


def row(time_s: float, *others: Other, **given: Any) -> Row:
    """Return a row, by default of a car at 5 m/s that neither driver brakes."""
    plain: dict[str, Any] = {"speed_mps": 5.0, "pedal": 0.3, "expert_pedal": 0.3, "in_junction": False, "light": "none"}
    gaps = dict.fromkeys(("light_gap_m", "lead_gap_m", "walker_gap_m", "crossing_gap_m"))
    return Row(time_s=time_s, others=others, **{**plain, **gaps, **given})


def approach(at: Other, steps: int = 40, **given: Any) -> list[Row]:
    """Return rows of 4 s in which the car comes up at 5 m/s to where ``at`` is in the last one."""
    back = [0.1 * (steps - 1 - number) for number in range(steps)]
    return [row(4.0 - s, dataclasses.replace(at, ahead_m=at.ahead_m + 5.0 * s), **given) for s in back]


@pytest.mark.parametrize(
    ("met", "given", "name"),
    [
        ({"rightward_mps": 1.4}, {}, "person from the left"),
        ({"rightward_mps": -1.4}, {"in_junction": True}, "person from the right in a junction"),
        ({"forward_mps": 1.4}, {}, "person along the road"),
        ({}, {}, "person standing"),
        ({"forward_mps": -1.4}, {"speed_mps": 0.0}, "person walks into the standing car"),
    ],
)
def test_persons_are_told_by_where_they_came_from(met: Any, given: Any, name: str) -> None:
    assert cause(approach(other(**PERSON, **met), **given), "pedestrian").name == name


@pytest.mark.parametrize(
    ("met", "given", "name"),
    [
        ({}, {}, "car ahead standing"),
        ({"forward_mps": 3.0}, {}, "car ahead driving"),
        ({"turned_rad": math.pi, "forward_mps": -5.0}, {}, "car oncoming"),
        ({"turned_rad": math.pi / 2, "rightward_mps": 5.0}, {}, "car crossing"),
        ({"turned_rad": -math.pi / 2}, {}, "car standing across"),
        ({"ahead_m": -5.0, "forward_mps": 6.0}, {"speed_mps": 2.0}, "car hits from behind"),
        ({"ahead_m": 1.0, "right_m": 2.2, "rightward_mps": -2.0}, {"speed_mps": 0.0}, "car hits the standing car"),
    ],
)
def test_cars_are_told_by_how_they_met(met: Any, given: Any, name: str) -> None:
    assert cause(approach(other(**CAR, **met), **given), "vehicle").name == name


def test_a_car_that_was_beside_the_lane_cut_in() -> None:
    rows = approach(other(**CAR, forward_mps=4.0))
    beside = [dataclasses.replace(each, others=(other(**CAR, ahead_m=9.0, right_m=3.5),)) for each in rows[:25]]
    assert cause([*beside, *rows[25:]], "vehicle").name == "car cuts in"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"expert_pedal": 0.5}, "blocked, stands for nothing"),
        ({"expert_pedal": -0.5, "light": "red", "light_gap_m": 3.0}, "blocked, stands before a light"),
        ({"expert_pedal": -0.5, "light_gap_m": 1.0, "lead_gap_m": 3.0}, "blocked, stands before a car ahead"),
        ({"expert_pedal": -0.5}, "blocked, stands as the expert"),
    ],
)
def test_a_drive_that_stood_is_told_by_what_it_stood_for(given: Any, name: str) -> None:
    assert cause([row(0.1 * number, speed_mps=0.0, **given) for number in range(20)], "blocked").name == name


def test_whoever_is_pushed_in_the_last_rows_is_told_by_how_it_moved_before() -> None:
    person = approach(other(**PERSON, rightward_mps=1.4))
    pushed = [dataclasses.replace(each, others=(other(**PERSON, forward_mps=5.0),)) for each in person[-3:]]
    assert cause([*person[:-3], *pushed], "pedestrian").name == "person from the left"
    car = approach(other(**CAR))
    pushed = [dataclasses.replace(each, others=(other(**CAR, forward_mps=3.0, turned_rad=0.9),)) for each in car[-3:]]
    assert cause([*car[:-3], *pushed], "vehicle").name == "car ahead standing"


def test_a_person_behind_a_car_is_seen_when_the_car_no_longer_hides_it() -> None:
    rows = approach(other(**PERSON, rightward_mps=1.4))
    hiding = other(**CAR, id=2, ahead_m=5.0)
    found = cause(
        [*(dataclasses.replace(each, others=(*each.others, hiding)) for each in rows[:35]), *rows[35:]], "pedestrian"
    )
    assert found.name == "person from the left, hardly in view"
    assert found.in_view_s == pytest.approx(0.4)
    assert found.first_seen_m == pytest.approx(3.0 + 5.0 * 0.4 + 1.5)


def test_a_cause_says_who_braked_and_since_when() -> None:
    rows = approach(other(**PERSON, rightward_mps=1.4))
    braked = [*rows[:30], *(dataclasses.replace(each, expert_pedal=-0.8) for each in rows[30:])]
    found = cause(braked, "pedestrian")
    assert found.expert_braked_s == pytest.approx(0.9)
    assert found.policy_braked_s == 0.0
    assert found.pixels == pytest.approx(84 / 2 / math.tan(math.radians(30)) * 1.8 / (3.0 + 5.0 + 1.5), rel=0.1)


def test_what_is_outside_both_cameras_is_not_in_view() -> None:
    assert in_view(other(**PERSON, ahead_m=5.0, right_m=5.0), ())
    assert not in_view(other(**PERSON, ahead_m=1.0, right_m=5.0), ())


def test_rows_read_back_are_the_rows_written() -> None:
    rows = approach(other(**CAR))
    assert read(json.loads(json.dumps({"rows": [dataclasses.asdict(each) for each in rows]}))) == rows
