"""The figures of some drives, each written once: what it is, and how tables show it.

A drive is a ``metrics.RouteResult`` as a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

Drives = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A figure of some drives; 0 where a share or a rate is of nothing."""

    of: Callable[[Drives], float]
    label: str = ""
    format: str = ""
    """Both of tables; empty where none shows it."""


def _sum(drives: Drives, name: str) -> float:
    return float(sum(drive[name] for drive in drives))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(name: str, label: str = "", format: str = "") -> Figure:
    return Figure(lambda drives: _share(_sum(drives, name), len(drives)), label, format)


def _per_km(name: str, label: str = "", format: str = ".2f") -> Figure:
    return Figure(lambda drives: _share(1000.0 * _sum(drives, name), _sum(drives, "distance_m")), label, format)


FIGURES = {
    "success": _mean("success", "success", ".0%"),
    "route_completion": _mean("route_completion", "completion", ".1%"),
    "driving_score": _mean("driving_score", "driving score", ".1f"),
    "collisions_per_km": _per_km("collisions", "collisions/km"),
    "pedestrians_per_km": _per_km("pedestrians", "people/km"),
    "vehicles_per_km": _per_km("vehicles", "cars/km"),
    "statics_per_km": _per_km("statics", "static/km"),
    "red_lights_per_km": _per_km("red_lights"),
    "stop_signs_per_km": _per_km("stop_signs"),
    "red_lights_run": Figure(
        lambda drives: _share(_sum(drives, "red_lights"), _sum(drives, "red_lights_met")), "red lights run", ".0%"
    ),
    "off_lane_share": _mean("off_lane_share"),
    "agent_blocked": Figure(lambda drives: _share(sum(drive["end"] == "blocked" for drive in drives), len(drives))),
    "lane_invasions_per_km": _per_km("lane_invasions", "lane inv./km", ".1f"),
    "mean_speed_mps": Figure(
        lambda drives: _share(_sum(drives, "distance_m"), _sum(drives, "duration_s")), "m/s", ".1f"
    ),
    "jerk_mps3": _mean("jerk_mps3", "jerk, m/s³", ".1f"),
    "reward": _mean("reward", "reward", ".1f"),
    "distance_km": Figure(lambda drives: _sum(drives, "distance_m") / 1000.0),
}


def totals(drives: Drives) -> dict[str, float]:
    """Return all of ``FIGURES``: means over drives, infractions a driven kilometre, and shares."""
    return {name: figure.of(drives) for name, figure in FIGURES.items()}


def shown(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return some figures as tables show them, by their labels; None is a dash."""
    chosen = [(found[name], FIGURES[name]) for name in names]
    return {figure.label: "–" if value is None else format(value, figure.format) for value, figure in chosen}


def in_columns(title: str, groups: Mapping[str, Mapping[str, Mapping[str, str]]], caption: str | None = None) -> Table:
    """Return what each group's members have to show, a column a member: there are few of them, and many figures.

    So a dozen figures of five drivers fit a terminal of 80 columns.

    Args:
        groups: by its heading, which is left out where it is empty, members by name, figures by name.
        caption: below it.
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
