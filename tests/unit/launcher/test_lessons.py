"""The last lines of a run: what its driver has learned, what it can't do yet, what comes next."""

from __future__ import annotations

from typing import Any

import pytest

from carla_launcher.show.lessons import lessons

GOOD = {
    "success": 1.0,
    "routes": 8.0,
    "route_completion": 1.0,
    "lane_invasions_per_km": 0.4,
    "mean_speed_mps": 7.5,
    "jerk_mps3": 1.8,
}


def said(**drivers: dict[str, float]) -> dict[str, str]:
    rows: list[dict[str, Any]] = [
        {"name": name.replace("_", "-"), "totals": totals} for name, totals in drivers.items()
    ]
    return dict(lessons(rows, "night", "python scripts/launch.py"))


def test_without_an_evaluation_of_the_driver_nothing_is_said() -> None:
    assert said() == {}
    assert said(pid=GOOD) == {}
    assert said(td3={}) == {}


def test_what_was_learned_stands_beside_the_rules() -> None:
    lines = said(td3={**GOOD, "success": 0.875}, pid={**GOOD, "mean_speed_mps": 7.0, "jerk_mps3": 1.1})
    assert list(lines) == ["learned", "not yet", "next"]
    assert lines["learned"] == (
        "td3 finishes 7 of 8 routes that training never drove, at 7.5 m/s, 0.4 lane invasions per km, jerk 1.8 m/s³ "
        "(pid: 8 of 8, at 7.0 m/s, 0.4 lane invasions per km, jerk 1.1 m/s³)"
    )
    assert "pid" not in said(td3=GOOD)["learned"]


@pytest.mark.parametrize(
    ("td3", "greyed", "expected"),
    [
        ({"route_completion": 0.4}, GOOD, "it completes 40% of a route on average"),
        ({"lane_invasions_per_km": 45.0}, GOOD, "it weaves, 45 lane invasions per km"),
        ({}, GOOD, "with a grey picture it still finishes 8 of 8"),
        ({}, {**GOOD, "route_completion": 0.3}, "what it was not trained for"),
        ({}, {}, "what it was not trained for"),
    ],
)
def test_what_it_can_not_do_yet_is_the_first_that_is_missing(
    td3: dict[str, float], greyed: dict[str, float], expected: str
) -> None:
    assert said(td3={**GOOD, **td3}, td3_greyed=greyed)["not yet"].startswith(expected)


def test_the_next_two_commands_can_be_typed() -> None:
    assert said(td3=GOOD)["next"] == (
        "python scripts/launch.py report night; then python scripts/launch.py up --config traffic"
    )
