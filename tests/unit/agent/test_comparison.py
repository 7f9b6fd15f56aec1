"""The statistics of the driving benchmark, on drives of this test's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from carla_td3.evaluation import comparison

ROUTES, WEATHERS = 20, ("ClearNoon", "WetNoon")


def drives(name: str, success: dict[int, float], traffic: str = "regular", **figures: Any) -> list[dict[str, Any]]:
    """Every route in each weather, for each seed with its share of successes: always the first routes."""
    plain = {"red_lights": 1, "red_lights_met": 4, "distance_m": 500.0, "duration_s": 100.0, "jerk_mps3": 1.0}
    plain |= dict.fromkeys(("collisions", "pedestrians", "vehicles", "statics", "stop_signs", "lane_invasions"), 0)
    plain |= {"off_lane_share": 0.0, "reward": 0.0}
    return [
        {
            **plain,
            "driver": name,
            "seed": seed,
            "traffic": traffic,
            "weather": weather,
            "route": route,
            "end": "finished",
            "success": route < share * ROUTES,
            "route_completion": 1.0,
            "driving_score": 100.0 * (route < share * ROUTES),
            **figures,
        }
        for seed, share in success.items()
        for weather in WEATHERS
        for route in range(ROUTES)
    ]


def test_an_interval_is_of_independent_routes():
    values = np.zeros((1, ROUTES, 2))
    values[:, : ROUTES // 2] = 1.0
    low, high = comparison.bootstrap(values, comparison.mean)
    # Of 20 independent routes, not of 40 drives: √(0.25 / 20) = 0.11.
    assert low == pytest.approx(0.5 - 1.96 * 0.112, abs=0.04)
    assert high == pytest.approx(0.5 + 1.96 * 0.112, abs=0.04)


@pytest.mark.parametrize("other", comparison.BASELINES)
def test_differences_are_paired_by_route(other: str):
    report = comparison.report(drives("td3", {0: 0.75, 1: 0.8, 2: 0.75}) + drives(other, {0: 0.5}))
    td3 = report["traffic"]["regular"]["td3"]
    assert td3["success"] == pytest.approx(0.7667, abs=1e-3)
    assert td3["beyond"][other]["success"] == pytest.approx(0.2667, abs=1e-3)
    assert td3["beyond"][other]["driving_score"] == pytest.approx(26.67, abs=0.1)
    low, high = td3["beyond"][other]["success_95"]
    # One on about 5.3 of 20 routes, nothing on the others: 0.267 ± 1.96 √(0.267 · 0.733 / 20).
    assert (low, high) == pytest.approx((0.267 - 0.194, 0.267 + 0.194), abs=0.04)


def test_any_driver_can_be_the_one_that_others_are_compared_with():
    report = comparison.report(drives("td3", {0: 0.8}) + drives("earlier", {0: 0.5}), against=("earlier",))
    by = report["traffic"]["regular"]
    assert (by["td3"]["beyond"]["earlier"]["success"], by["earlier"]["beyond"]) == (pytest.approx(0.3), {})
    shown = {label: cells for label, *cells in zip(*(c.cells for c in comparison.table(report).columns), strict=True)}
    assert shown["beyond earlier"] == ["", "+30 (10 to 50)"]
    assert shown["score beyond earlier"] == ["", "+30 (10 to 50)"]


@pytest.mark.parametrize(("expert", "pid", "judged"), [(0.95, 0.5, True), (0.85, 0.5, False), (0.95, 0.7, False)])
def test_floors_are_judged_where_eyes_are_needed_and_enough(expert: float, pid: float, judged: bool):
    report = comparison.report(drives("expert", {0: expert}) + drives("pid", {0: pid}))
    assert (report["floors_are_judged_in"] == ["regular"]) is judged


def test_the_interquartile_mean_leaves_out_both_ends():
    values = np.array([0.0, 0.0, 40.0, 60.0, 50.0, 50.0, 100.0, 100.0, np.nan])
    assert comparison.interquartile_mean(values) == pytest.approx(50.0)


def test_what_was_not_driven_counts_for_nobody():
    missing = drives("stop", {0: 0.0})
    found = drives("pid", {0: 0.5}, "dense") + missing[:-1] + [{**missing[-1], "end": None}]
    report = comparison.report(found)
    assert (report["drives"], report["not_driven"]) == (79, 1)
    assert report["traffic"]["regular"]["stop"]["red_lights_run"] == 0.25
    view = comparison.table(report)
    assert [column.header for column in view.columns] == ["", "stop", "pid"]
    shown = list(zip(*(column.cells for column in view.columns), strict=True))
    assert ("drives", "39", "") in shown, "stop in regular, where pid didn't drive"
    assert ("drives", "", "40") in shown


@pytest.mark.parametrize(
    "driven", [{"route": range(10)}, {"weather": ["ClearNoon"]}, {"route": [3], "weather": ["WetNoon"]}]
)
def test_few_drives_are_compared_on_these_only(driven: dict[str, Any]):
    def few(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [drive for drive in of if all(drive[key] in chosen for key, chosen in driven.items())]

    pid = drives("pid", {0: 0.5})
    for drive in pid:
        drive["success"] = drive in few(pid)
    report = comparison.report(few(drives("td3", {0: 1.0})) + pid)
    td3 = report["traffic"]["regular"]["td3"]
    assert td3["success_95"] == (1.0, 1.0)
    assert td3["beyond"]["pid"]["success"] == 0.0
    assert td3["beyond"]["pid"]["success_95"] == (0.0, 0.0)


@pytest.mark.filterwarnings("error")
def test_a_seed_that_has_driven_little_leaves_an_interval_and_no_warning():
    begun = [drive for drive in drives("td3", {1: 1.0}) if drive["route"] < 2]
    report = comparison.report(drives("td3", {0: 0.5}) + begun + drives("pid", {0: 0.5}))
    td3 = report["traffic"]["regular"]["td3"]
    assert td3["drives"] == 2 * ROUTES + 4
    assert 0.2 < td3["success_95"][0] < td3["success_95"][1] <= 1.0
