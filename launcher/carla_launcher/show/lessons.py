"""Sums up a run's last evaluation in three lines: what was learned, what isn't yet, what to run next.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from carla_run.readers import inner, number

Row = Mapping[str, Any]

ARRIVES = 0.97
"""Route completion of a driver that has learned the task."""
WEAVES_PER_KM = 10.0
"""Lane invasions per km of a driver that weaves."""
NEXT_TASK = "traffic"


def lessons(evaluations: Sequence[Row], run: str, program: str) -> list[tuple[str, str]]:
    """Return label and sentence of each line; empty without an evaluation of the trained driver.

    Args:
        evaluations: rows of ``evaluation.json``.
        run: arguments that name the run to the launcher.
        program: command of the launcher.
    """
    totals = {str(row.get("name")): inner(row, "totals") for row in evaluations}
    td3 = totals.get("td3", {})
    if number(td3.get("success")) is None:
        return []
    return [
        ("learned", _learned(td3, totals.get("pid", {}))),
        ("not yet", _not_yet(td3, totals.get("td3-greyed", {}))),
        ("next", f"{program} report {run}; then {program} up --config {NEXT_TASK}"),
    ]


def _learned(td3: Row, pid: Row) -> str:
    words = f"td3 finishes {_finished(td3)} routes that training never drove, {_manner(td3)}"
    return f"{words} (pid: {_finished(pid)}, {_manner(pid)})" if number(pid.get("success")) is not None else words


def _not_yet(td3: Row, greyed: Row) -> str:
    if _of(td3, "route_completion") < ARRIVES:
        return f"it completes {_of(td3, 'route_completion'):.0%} of a route on average: train it for more steps"
    if _of(td3, "lane_invasions_per_km") > WEAVES_PER_KM:
        return f"it weaves, {_of(td3, 'lane_invasions_per_km'):.0f} lane invasions per km: train it for more steps"
    if _of(greyed, "route_completion") >= ARRIVES:
        return (
            f"with a grey picture it still finishes {_finished(greyed)}: it observes the route, so an empty road needs "
            "no picture; cars, lights and pedestrians do"
        )
    return "what it was not trained for: other weather, other traffic, other towns"


def _finished(totals: Row) -> str:
    routes = _of(totals, "routes")
    return f"{_of(totals, 'success') * routes:.0f} of {routes:.0f}"


def _manner(totals: Row) -> str:
    return (
        f"at {_of(totals, 'mean_speed_mps'):.1f} m/s, {_of(totals, 'lane_invasions_per_km'):.1f} lane invasions per km"
        f", jerk {_of(totals, 'jerk_mps3'):.1f} m/s³"
    )


def _of(totals: Row, figure: str) -> float:
    return number(totals.get(figure)) or 0.0
