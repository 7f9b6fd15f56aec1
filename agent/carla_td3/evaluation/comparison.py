"""Drivers compared over traffic, weathers, routes and training seeds: means, intervals, paired differences, a table.

Pure. A drive is a ``RouteResult`` as a dictionary, with ``driver``, ``seed``, ``traffic``, ``weather`` and its route's
number, ``route``; ``end`` is None if it couldn't be driven. Intervals are 95 % percentile intervals of bootstraps:
training seeds are resampled, then routes, each with all its weathers, since those aren't independent drives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from carla_td3.evaluation import figures

Drive = dict[str, Any]
Values = NDArray[np.float64]
"""(seeds, routes, weathers); NaN where nothing was driven."""

RESAMPLES = 5_000
TRAFFIC = ("empty", "regular", "dense")
BASELINES = "pid", "twin", "imitation-only"
"""Drivers that the others are compared with unless others are named: the blind PID, drivers trained without a picture,
and without Q."""
SHOWN = (
    *("route_completion", "driving_score", "pedestrians_per_km", "vehicles_per_km", "statics_per_km"),
    *("red_lights_run", "lane_invasions_per_km", "jerk_mps3", "mean_speed_mps"),
)
"""Figures that the table shows."""
FLOOR_EXPERT, FLOOR_PID = 0.9, 0.6
"""Vision is judged in traffic where the expert succeeds at least this often and the blind PID at most this often."""


def report(drives: Sequence[Drive], against: Sequence[str] = BASELINES) -> dict[str, Any]:
    """Return the figures of each driver in each traffic, and its margins over those of ``against`` that drove there."""
    driven = [drive for drive in drives if drive["end"] is not None]
    found: dict[str, Any] = {}
    for traffic in TRAFFIC:
        here = [drive for drive in driven if drive["traffic"] == traffic]
        names = sorted({drive["driver"] for drive in here})
        if names:
            found[traffic] = {name: _summary(here, name, against) for name in names}
    return {
        "drives": len(driven),
        "not_driven": len(drives) - len(driven),
        "traffic": found,
        "floors_are_judged_in": [
            traffic
            for traffic, by in found.items()
            if {"expert", "pid"} <= set(by)
            and by["expert"]["success"] >= FLOOR_EXPERT
            and by["pid"]["success"] <= FLOOR_PID
        ],
    }


def _summary(drives: Sequence[Drive], name: str, against: Sequence[str]) -> dict[str, Any]:
    own = [drive for drive in drives if drive["driver"] == name]
    success, score = _values(drives, name, "success"), _values(drives, name, "driving_score")
    totals, met = figures.totals(own), sum(drive["red_lights_met"] for drive in own)
    margins = {other: _margins(drives, name, other) for other in against if other != name}
    return {
        **totals,
        "drives": len(own),
        "success_95": bootstrap(success, mean),
        "driving_score_iqm": float(interquartile_mean(score.ravel())),
        "driving_score_iqm_95": bootstrap(score, interquartile_mean),
        "red_lights_met": met,
        "red_lights_run": totals["red_lights_run"] if met else None,
        "ends": dict(Counter(sorted(drive["end"] for drive in own))),
        "beyond": {other: found for other, found in margins.items() if found},
    }


def _margins(drives: Sequence[Drive], name: str, other: str) -> dict[str, Any]:
    """Return a driver's margins over another one on the drives that both have, with their intervals; {} without any."""
    found: dict[str, Any] = {}
    for figure in ("success", "driving_score"):
        own, than = _in_common(_values(drives, name, figure), _values(drives, other, figure))
        if own.size:
            found[figure] = float(mean(own.ravel()) - mean(than.ravel()))
            found[f"{figure}_95"] = bootstrap_difference(own, than)
    return found


def bootstrap(values: Values, of: Callable[[Values], NDArray[np.float64]]) -> tuple[float, float]:
    """Return the 95 % interval of a figure over (seeds, routes, weathers): resamples seeds, then routes.

    Args:
        of: takes (n, drives) and returns the figure of each row.
    """
    rng = np.random.default_rng(0)
    (values,) = _in_common(values)
    seeds, routes, weathers = values.shape
    chosen = rng.integers(0, seeds, (RESAMPLES, seeds, 1))
    drawn = values[chosen, rng.integers(0, routes, (RESAMPLES, seeds, routes))]
    return _interval_of(of(drawn.reshape(RESAMPLES, seeds * routes * weathers)))


def bootstrap_difference(values: Values, than: Values) -> tuple[float, float]:
    """Return the 95 % interval of a difference of two means: resamples each one's seeds, and the same routes for both.

    Args:
        values, than: (seeds, routes, weathers), of the same routes and weathers.
    """
    rng = np.random.default_rng(0)
    routes = rng.integers(0, values.shape[1], (RESAMPLES, 1, values.shape[1]))
    means = [
        mean(each[rng.integers(0, len(each), (RESAMPLES, len(each), 1)), routes].reshape(RESAMPLES, -1))
        for each in (values, than)
    ]
    return _interval_of(means[0] - means[1])


def _interval_of(figures: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.nanpercentile(figures, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def mean(values: Values) -> NDArray[np.float64]:
    """Return the mean of each row, ignoring NaN; NaN for a row of nothing else."""
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.nansum(values, axis=-1) / np.count_nonzero(~np.isnan(values), axis=-1)
    return means


def interquartile_mean(values: Values) -> NDArray[np.float64]:
    """Return the mean of the middle half of each row (Agarwal et al. 2021), ignoring NaN."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.count_nonzero(~np.isnan(ordered), axis=-1, keepdims=True)
    place = np.arange(ordered.shape[-1])
    middle = (place >= count // 4) & (place < count - count // 4)
    return mean(np.where(middle, ordered, np.nan))


def _in_common(*values: Values) -> list[Values]:
    """Return the values of drives that each has, with any seed: others are NaN, routes without any are left out."""
    both = np.all([~np.isnan(each).all(axis=0) for each in values], axis=0)
    return [np.where(both, each, np.nan)[:, both.any(axis=1)] for each in values]


def _values(drives: Sequence[Drive], name: str, figure: str) -> Values:
    """Return a driver's figure for every seed, route and weather that any driver has driven."""
    seeds = sorted({drive["seed"] for drive in drives if drive["driver"] == name})
    routes = sorted({drive["route"] for drive in drives})
    weathers = sorted({drive["weather"] for drive in drives})
    values = np.full((len(seeds), len(routes), len(weathers)), np.nan)
    for drive in drives:
        if drive["driver"] == name:
            place = seeds.index(drive["seed"]), routes.index(drive["route"]), weathers.index(drive["weather"])
            values[place] = drive[figure]
    return values


def table(report: dict[str, Any]) -> Table:
    """Return the figures of every driver, one block per traffic."""
    title = (
        f"{report['drives']} drives; vision is judged in traffic: {', '.join(report['floors_are_judged_in']) or 'none'}"
    )
    traffic = report["traffic"].items()
    groups = {name: {who: _shown(found) for who, found in by.items()} for name, by in traffic}
    return figures.in_columns(title, groups)


def _shown(found: dict[str, Any]) -> dict[str, str]:
    margins: dict[str, str] = {}
    for other, beyond in found["beyond"].items():
        margins[f"beyond {other}"] = f"{100 * beyond['success']:+.0f} ({interval(beyond['success_95'])})"
        low, high = beyond["driving_score_95"]
        margins[f"score beyond {other}"] = f"{beyond['driving_score']:+.0f} ({low:.0f} to {high:.0f})"
    return {
        "drives": str(found["drives"]),
        **figures.shown(found, ("success",)),
        "95 %": interval(found["success_95"]),
        **margins,
        **figures.shown(found, SHOWN),
    }


def interval(ends: Sequence[float]) -> str:
    """Return an interval of shares in percent."""
    return f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f}"
