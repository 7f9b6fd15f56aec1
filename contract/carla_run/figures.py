"""Labels and formats of an evaluation's figures in tables, by the keys of ``totals`` in ``evaluation.json``."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

from carla_run.readers import number


class Shown(NamedTuple):
    """A figure's label with its unit, and the format of its value."""

    label: str
    format: str


SHOWN: Dict[str, Shown] = {
    "success": Shown("success", ".0%"),
    "route_completion": Shown("completion", ".1%"),
    "driving_score": Shown("driving score", ".1f"),
    "collisions_per_km": Shown("collisions/km", ".2f"),
    "pedestrians_per_km": Shown("people/km", ".2f"),
    "vehicles_per_km": Shown("cars/km", ".2f"),
    "statics_per_km": Shown("static/km", ".2f"),
    "red_lights_per_km": Shown("red/km", ".2f"),
    "red_lights_run": Shown("red lights run", ".0%"),
    "lane_invasions_per_km": Shown("lane inv./km", ".1f"),
    "mean_speed_mps": Shown("m/s", ".1f"),
    "jerk_mps3": Shown("jerk, m/s³", ".1f"),
    "reward": Shown("return", ".1f"),
    "routes": Shown("routes", ".0f"),
    "blocked": Shown("blocked", ".0f"),
}


def in_table(name: str, value: Any) -> str:
    """Return a figure's value for a table; a dash if it is no number."""
    found = number(value)
    return "–" if found is None else format(found, SHOWN[name].format)
