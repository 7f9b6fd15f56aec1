from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from carla_td3.cli.evaluation import environment
from carla_td3.config import AgentConfig
from carla_td3.env.hazards import NOTHING
from carla_td3.env.infractions import Infraction
from carla_td3.env.session import NoSimulator
from carla_td3.evaluation.drivers import StopDriver, evaluated
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import (
    IMPULSE_NS,
    Evaluation,
    RouteResult,
    Tally,
    driving_score,
    limit_s,
    succeeded,
    table,
    write_csv,
    write_json,
)
from carla_td3.evaluation.observed_driver import ObservedDriver
from carla_td3.evaluation.routes import completed, evaluate


def result(**values: Any) -> RouteResult:
    """A drive without fault of 200 m in 40 s, but for ``values``."""
    kinds = dict.fromkeys(("collisions", "pedestrians", "vehicles", "statics", "lane_invasions", "stop_signs"), 0)
    lights = {"red_lights": 0, "red_lights_met": 0, "off_lane_share": 0.0, "minimum_speed_share": 1.0}
    good = {"end": "finished", "success": True, "route_completion": 1.0, "driving_score": 100.0, "reward": 50.0}
    drive = {"distance_m": 200.0, "duration_s": 40.0, "mean_speed_mps": 5.0, "jerk_mps3": 1.0, "steps": 400}
    return RouteResult(**{"route": "a>b", "length_m": 200.0, "turns": 1, **good, **kinds, **lights, **drive, **values})


CRASH = result(end="collision", success=False, route_completion=0.5, driving_score=30.0, collisions=1, distance_m=300.0)


def test_totals_are_means_over_routes_and_rates_over_kilometres() -> None:
    totals = Evaluation("x", "Town", 0, (result(), CRASH)).totals()
    expected = {"success": 0.5, "route_completion": 0.75, "driving_score": 65.0, "collisions_per_km": 2.0}
    expected |= {"mean_speed_mps": 500.0 / 80.0, "routes": 2.0, "blocked": 0.0, "distance_km": 0.5}
    assert {name: totals[name] for name in expected} == pytest.approx(expected)
    lights = (result(red_lights=1, red_lights_met=2), result(red_lights_met=6), result())
    assert Evaluation("x", "Town", 0, lights).totals()["red_lights_run"] == pytest.approx(1 / 8), "of those met"


def test_no_route_and_no_metre_divide_nothing_by_zero() -> None:
    stood = (result(distance_m=0.0, duration_s=0.0, success=False),)
    for routes in ((), stood):
        totals = Evaluation("x", "Town", 0, routes).totals()
        assert totals["success"] == totals["collisions_per_km"] == totals["mean_speed_mps"] == 0.0


HIT = Infraction("collision", 10.0, 5.0, "vehicle", IMPULSE_NS + 1.0)
TOUCH = Infraction("collision", 10.0, 5.0, "pedestrian", IMPULSE_NS - 1.0)
RED = Infraction("red_light", 20.0, 7.0)


@pytest.mark.parametrize(
    ("end", "infractions", "success"),
    [
        ("finished", (), True),
        ("finished", (TOUCH, RED), True),
        ("finished", (RED, HIT), False),
        ("time", (), False),
        ("blocked", (), False),
    ],
)
def test_success_is_the_goal_in_time_without_a_hit(end: str, infractions: Any, success: bool) -> None:
    assert succeeded(end, infractions) is success


def test_the_time_limit_is_5_km_h_and_20_seconds() -> None:
    assert limit_s(500.0) == pytest.approx(380.0)


@pytest.mark.parametrize(
    ("kinds", "off_lane_share", "minimum_speed_share", "score"),
    [
        ({}, 0.0, 1.0, 80.0),
        ({"pedestrian": 1}, 0.0, 1.0, 40.0),
        ({"vehicle": 1, "static": 1, "red_light": 1, "stop_sign": 1}, 0.0, 1.0, 80.0 / 2.95),
        ({"red_light": 3}, 0.25, 1.0, 60.0 / 2.2),
        ({}, 0.0, 0.5, 80.0 / 1.2),
        ({"off_road": 1, "blocked": 1}, 0.0, 1.0, 80.0),
    ],
)
def test_the_driving_score_is_that_of_the_leaderboard_2_1(
    kinds: Any, off_lane_share: float, minimum_speed_share: float, score: float
) -> None:
    assert driving_score(0.8, kinds, off_lane_share, minimum_speed_share) == pytest.approx(score)


def test_table_shows_drivers_side_by_side() -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table([Evaluation("td3", "Town", 0, (result(),)), Evaluation("stop", "Town", 0, (CRASH,))]))
    text = console.export_text()
    assert "td3" in text
    assert "stop" in text
    assert "1 route on Town" in text


def test_files_hold_every_route_and_every_driver(tmp_path: Path) -> None:
    evaluations = [Evaluation("td3", "Town", 7, (result(), CRASH)), Evaluation("stop", "Town", 7, (result(),))]
    write_json(evaluations, tmp_path / "new" / "e.json")
    write_csv(evaluations, tmp_path / "new" / "e.csv")
    plain = json.loads((tmp_path / "new" / "e.json").read_text())
    rows = list(csv.DictReader((tmp_path / "new" / "e.csv").open()))
    assert [len(e["routes"]) for e in plain] == [2, 1]
    assert plain[0]["totals"]["success"] == 0.5
    assert [row["driver"] for row in rows] == ["td3", "td3", "stop"]
    assert rows[1]["end"] == "collision"
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["e.csv", "e.json"]


INFO = {
    "end": "finished",
    "route_completion": 1.0,
    "infractions": (),
    "lane_invasions": 0,
    "red_lights_met": 0,
    "off_lane_share": 0.0,
    "minimum_speed_share": 1.0,
}


class Road:
    """An environment of three steps a drive; notes what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seeds: list[int] = []
        self.state = None
        self.session = SimpleNamespace(config=SimpleNamespace(fixed_delta_s=0.1))
        self.planner = SimpleNamespace(name="Road")

    def reset(self, options: dict[str, Any]) -> tuple[None, dict[str, Any]]:
        self.asked.append("reset")
        self.seeds.append(options["seed"])
        return None, {"end": None}

    def step(self, action: object) -> tuple[None, float, bool, bool, dict[str, Any]]:  # noqa: ARG002 (the same)
        self.asked.append("step")
        over = self.asked.count("step") % 3 == 0
        info = {**INFO, "distance_m": 3.0, "jerk_mps3": 0.0, "simulator_lost": False}
        return None, 1.0, over, False, info if over else {**info, "end": None}


ROUTES: Any = [SimpleNamespace(name=name, length_m=3.0, turns=0) for name in ("a", "b")]


def test_an_evaluation_can_be_left_before_each_call() -> None:
    road: Any = Road()
    work = evaluate(road, StopDriver(), ROUTES, "stop")
    for calls in range(5):
        next(work)
        assert len(road.asked) == calls
    work.close()
    assert road.asked == ["reset", "step", "step", "step"]


def test_an_evaluation_drives_every_route() -> None:
    road: Any = Road()
    found = completed(evaluate(road, StopDriver(), ROUTES, "stop", seed=3))
    assert road.asked == ["reset", "step", "step", "step"] * 2
    assert [(route.route, route.steps, route.reward) for route in found.routes] == [("a", 3, 3.0), ("b", 3, 3.0)]
    assert (found.map, found.seed, found.blocked) == ("Road", 3, ())


def test_a_drive_that_is_kept_is_not_driven_again(tmp_path: Path) -> None:
    road: Any = Road()
    kept = KeptDrives(tmp_path / "e.json", {})
    kept.add("stop", result(route="b", reward=7.0))
    kept.add("pid", result(route="a"))
    found = completed(evaluate(road, StopDriver(), ROUTES, "stop", kept=kept))
    assert road.asked == ["reset", "step", "step", "step"]
    assert [(route.route, route.reward) for route in found.routes] == [("a", 3.0), ("b", 7.0)]
    assert kept.of("stop").keys() == {"a", "b"}


class NotedRoad(Road):
    """Notes the actions of each drive; loses the simulator in its first step if ``losing``."""

    def __init__(self, losing: bool) -> None:
        super().__init__()
        self.losing, self.loss = losing, "lost"
        self.drives: list[list[bytes]] = []

    def reset(self, options: dict[str, Any]) -> tuple[None, dict[str, Any]]:
        self.state: Any = SimpleNamespace(route=options["route"])
        self.drives.append([])
        return super().reset(options)

    def step(self, action: Any) -> tuple[None, float, bool, bool, dict[str, Any]]:
        self.drives[-1].append(action.tobytes())
        if self.losing:
            self.losing = False
            return None, 0.0, False, True, {"end": "simulator_lost", "jerk_mps3": 0.0, "simulator_lost": True}
        return super().step(action)


def test_a_drive_that_is_repeated_after_a_loss_draws_its_random_numbers_again() -> None:
    told: list[tuple[str, int]] = []

    def drives(losing: bool) -> list[list[bytes]]:
        road: Any = NotedRoad(losing)
        driver = evaluated("random", None, AgentConfig(), lambda: NOTHING)
        observed = ObservedDriver("random", driver, lambda *begun: told.append(begun))
        completed(evaluate(road, observed, ROUTES, "random"))
        noted: list[list[bytes]] = road.drives
        return noted

    undisturbed, (lost, *repeated) = drives(losing=False), drives(losing=True)
    assert lost == undisturbed[0][:1]
    assert repeated == undisturbed
    assert told == [("random", 1), ("random", 2)] * 2


def test_every_driver_meets_the_same_others_on_a_route() -> None:
    road: Any = Road()
    for seed in (0, 0, 1):
        completed(evaluate(road, StopDriver(), ROUTES, "stop", seed))
    first, second, other = road.seeds[:2], road.seeds[2:4], road.seeds[4:]
    assert first == second
    assert len({*first, *other}) == 4


def test_a_drives_figures_are_those_of_its_infractions() -> None:
    tally = Tally()
    tally.add(1.0, 0.0)
    route: Any = SimpleNamespace(name="a>b", length_m=100.0, turns=0)
    info = {**INFO, "infractions": (HIT, RED, RED, TOUCH), "red_lights_met": 3, "distance_m": 100.0}
    found = tally.result(route, info, 0.1)
    assert (found.collisions, found.vehicles, found.pedestrians, found.statics) == (2, 1, 1, 0)
    assert (found.red_lights, found.red_lights_met, found.success) == (2, 3, False)
    assert found.driving_score == pytest.approx(100.0 / (1.0 + 0.7 + 1.0 + 2 * 0.4))


def test_a_process_that_drives_leaves_the_cores_to_the_simulator():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    nobody = {"host": "127.0.0.1", "port": 1, "timeout_s": 0.1, "patience_s": 0}
    try:
        with pytest.raises(NoSimulator), environment(AgentConfig.model_validate({"simulator": nobody})):
            pass
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
