"""The figures of a list of drives, each computed in one place. ``carla_run.figures`` says how tables show them.

A drive is a ``metrics.RouteResult`` as a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from carla_run.figures import SHOWN, in_table

Drives = Sequence[Mapping[str, Any]]
Figure = Callable[[Drives], float]
"""Computes a figure of some drives; 0 for a share or rate of nothing."""


def _sum(drives: Drives, name: str) -> float:
    return float(sum(drive[name] for drive in drives))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(name: str) -> Figure:
    return lambda drives: _share(_sum(drives, name), len(drives))


def _per_km(name: str) -> Figure:
    return lambda drives: _share(1000.0 * _sum(drives, name), _sum(drives, "distance_m"))


FIGURES: dict[str, Figure] = {
    "success": _mean("success"),
    "route_completion": _mean("route_completion"),
    "driving_score": _mean("driving_score"),
    "collisions_per_km": _per_km("collisions"),
    "pedestrians_per_km": _per_km("pedestrians"),
    "vehicles_per_km": _per_km("vehicles"),
    "statics_per_km": _per_km("statics"),
    "red_lights_per_km": _per_km("red_lights"),
    "stop_signs_per_km": _per_km("stop_signs"),
    "red_lights_run": lambda drives: _share(_sum(drives, "red_lights"), _sum(drives, "red_lights_met")),
    "off_lane_share": _mean("off_lane_share"),
    "agent_blocked": lambda drives: _share(sum(drive["end"] == "blocked" for drive in drives), len(drives)),
    "lane_invasions_per_km": _per_km("lane_invasions"),
    "mean_speed_mps": lambda drives: _share(_sum(drives, "distance_m"), _sum(drives, "duration_s")),
    "jerk_mps3": _mean("jerk_mps3"),
    "reward": _mean("reward"),
    "distance_km": lambda drives: _sum(drives, "distance_m") / 1000.0,
}


def totals(drives: Drives) -> dict[str, float]:
    """Return all of ``FIGURES``: means over drives, infractions per driven kilometre, and shares."""
    return {name: figure(drives) for name, figure in FIGURES.items()}


def shown(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return some figures as tables show them, by their labels; None becomes a dash."""
    return {SHOWN[name].label: in_table(name, found[name]) for name in names}


def in_columns(title: str, groups: Mapping[str, Mapping[str, Mapping[str, str]]], caption: str | None = None) -> Table:
    """Return a table with one column per member: there are few members and many figures.

    A dozen figures of five drivers fit a terminal of 80 columns.

    Args:
        groups: heading to members, member to figures, figure to value. An empty heading is left out.
        caption: below the table.
    """
    names = list(dict.fromkeys(name for members in groups.values() for name in members))
    view = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    view.title, view.caption, view.title_justify, view.caption_justify = title, caption, "left", "left"
    view.add_column(no_wrap=True)
    for name in names:
        view.add_column(name, justify="right")
    for heading, members in groups.items():
        if heading:
            view.add_row(heading, style="bold")
        for figure in dict.fromkeys(figure for figures in members.values() for figure in figures):
            view.add_row(figure, *(members.get(name, {}).get(figure, "") for name in names))
        view.add_section()
    return view
