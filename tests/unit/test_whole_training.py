"""When a training reaches a return for good, and what the ratio of two such times is where one never did."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("stable_baselines3")
from whole_training import CLOCKS, Bound, Goal, Ratio, Reached, compared, median, ratio, shown, time_to

GOAL = Goal(reward=100.0, route_completion=0.9)
END = 12.0
EXACT, AT_MOST, AT_LEAST = Bound.EXACT, Bound.AT_MOST, Bound.AT_LEAST


def curve(*returns: float, completion: float = 1.0) -> list[dict[str, float]]:
    """Return an evaluation a minute, each with twice the processor minutes."""
    return [
        {"minutes": minute, "processor_minutes": 2.0 * minute, "reward": each, "route_completion": completion}
        for minute, each in enumerate(returns, 1)
    ]


@pytest.mark.parametrize(
    ("returns", "minutes"),
    [
        ((100, 100, 100, 0), 1.0),
        ((0, 120, 100, 110), 2.0),
        ((0, 120, 0, 110, 110, 110), 4.0),
        ((0, 0, 120, 110), 3.0),
        ((0, 0, 0, 100), 4.0),
    ],
)
def test_the_goal_is_reached_once_three_evaluations_in_a_row_do_or_all_that_are_left(
    returns: tuple[float, ...], minutes: float
) -> None:
    assert time_to(GOAL, curve(*returns), END, "minutes") == Reached(minutes)


@pytest.mark.parametrize("never", [curve(), curve(99, 0, 99), curve(100, 100, 0), curve(200, 200, 200, completion=0.8)])
def test_a_training_that_does_not_stay_at_the_goal_has_its_whole_time(never: list[dict[str, float]]) -> None:
    assert time_to(GOAL, never, END, "minutes") == Reached(END, reached=False)


def test_the_time_is_that_of_the_clock() -> None:
    assert [time_to(GOAL, curve(0, 100, 100), END, clock).minutes for clock in CLOCKS] == [2.0, 4.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (Reached(2), Reached(8), Ratio(0.25, EXACT)),
        (Reached(2), Reached(10, reached=False), Ratio(0.2, AT_MOST)),
        (Reached(3, reached=False), Reached(6), Ratio(0.5, AT_LEAST)),
        (Reached(3, reached=False), Reached(10, reached=False), None),
    ],
)
def test_a_side_that_never_arrives_leaves_a_bound(ours: Reached, theirs: Reached, expected: Ratio | None) -> None:
    assert ratio(ours, theirs) == expected


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([Ratio(0.2), Ratio(0.5), Ratio(0.3)], Ratio(0.3, EXACT)),
        ([Ratio(0.2, AT_MOST), Ratio(0.5), Ratio(0.3)], Ratio(0.3, AT_MOST)),
        ([Ratio(0.2), Ratio(0.4, AT_LEAST)], Ratio(0.3, AT_LEAST)),
        ([Ratio(0.2, AT_MOST), Ratio(0.5, AT_LEAST), Ratio(0.3)], None),
        ([Ratio(0.2), None, Ratio(0.3)], None),
        ([], None),
    ],
)
def test_the_median_of_bounds_is_a_bound_or_unknown(ratios: list[Ratio | None], expected: Ratio | None) -> None:
    found = median(ratios)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.bound is expected.bound
        assert math.isclose(found.value, expected.value)


def test_sides_are_compared_by_the_seeds_that_both_have() -> None:
    def times(**minutes: float) -> dict[str, dict[str, Reached]]:
        return {seed: {"minutes": Reached(each)} for seed, each in minutes.items()}

    found = compared(times(a=1, b=4, c=9), times(a=2, b=4), "minutes")
    assert found == {"median": "0.75", "seeds": {"a": "0.50", "b": "1.00"}}


def test_a_bound_is_named() -> None:
    assert [shown(each) for each in (Ratio(0.2), Ratio(0.2, AT_MOST), None)] == ["0.20", "at most 0.20", "unknown"]
