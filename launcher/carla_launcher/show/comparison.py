"""Compares two runs on one page: figures, drivers, learning curves, and differences of their configurations.

Reads only their files. Like the report, it runs in a separate process (``python -m carla_launcher.show.comparison PAGE
RUN RUN``, see ``report_process``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carla_launcher.act.saved_config import saved_config
from carla_launcher.show import charts, history, report, run_charts
from carla_run.files import write_whole
from carla_run.keys import leaves
from carla_run.paths import RunPaths
from carla_run.readers import items, read_objects

Row = Mapping[str, Any]


def write(page: Path, one: RunPaths, other: RunPaths) -> None:
    """Write the page that compares two runs.

    Raises:
        OSError: it can't be written.
    """
    write_whole(page, report.templates(escaped=True).get_template("comparison.html").render(_content((one, other))))


def _content(runs: tuple[RunPaths, RunPaths]) -> dict[str, Any]:
    histories = [history.examine(run) for run in runs]
    facts = [
        {"outcome": report.outcome(each), **report.facts(run, each)} for run, each in zip(runs, histories, strict=True)
    ]
    names = [run.path.name for run in runs]
    evaluations, differ = _evaluations(runs)
    configurations = [dict(leaves(saved_config(run))) for run in runs]
    return {
        "names": list(zip(names, charts.SERIES, strict=True)),
        "damaged": [(name, each.damaged) for name, each in zip(names, histories, strict=True) if each.damaged],
        "facts": _side_by_side(facts, only_different=False),
        "driving": report.driving(evaluations),
        "routes_differ": differ,
        "curves": run_charts.curves(run_charts.CURVES, *(each.metrics for each in histories)),
        "without": [name for name, values in zip(names, configurations, strict=True) if not values],
        "different": _side_by_side(configurations, only_different=True),
    }


def _evaluations(runs: tuple[RunPaths, RunPaths]) -> tuple[list[Row], bool]:
    """Return all drivers with their runs' names, and whether the runs drove different routes, which the names tell."""
    found = [(run.path.name, read_objects(run.evaluation_json)) for run in runs]
    one, other = ({_routes(row) for row in rows} for _, rows in found)
    differ = bool(one and other) and one != other
    return [
        {
            **row,
            "name": f"{row.get('name')} of {name}{_routes(row) if differ else ''}",
            "blocked": [f"{route} of {name}" for route in items(row, "blocked")],
        }
        for name, rows in found
        for row in rows
    ], differ


def _routes(evaluation: Row) -> str:
    return f", on {evaluation.get('map', '?')} with seed {evaluation.get('seed', '?')}"


def _side_by_side(runs: list[dict[str, Any]], *, only_different: bool) -> list[tuple[str, str, str]]:
    """Return (name, first run's value, second run's value) of everything that either has, in the order of the first."""
    one, other = runs
    names = dict.fromkeys([*one, *other])
    rows = [(name, str(one.get(name, "–")), str(other.get(name, "–"))) for name in names]
    return [row for row in rows if row[1] != row[2]] if only_different else rows


if __name__ == "__main__":
    PAGE, *RUNS = map(Path, sys.argv[1:])
    sys.exit(report.exit_code(PAGE, lambda: write(PAGE, *map(RunPaths, RUNS))))
