"""The figures of a drive: success, completion, driving score, infractions, comfort; per route and in total.

Owns the figures and their output: table, CSV, JSON, scalars for TensorBoard. Drives nothing. A drive continues after an
infraction, so that it gives both measures: NoCrash's success and the Leaderboard's driving score.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from carla_run.files import write_whole
from carla_td3.env.infractions import Infraction
from carla_td3.env.route_line import Route
from carla_td3.evaluation import figures

# NoCrash (Codevilla et al. 2019, section 4): a drive succeeds if it reaches its goal in the time that this speed needs,
# without a collision. As in NoCrash's code (in units of CARLA 0.8), light touches don't count: less than the impulse on
# a person of 75 kg hit at 1.3 m/s, or on a car of 1.8 t at 0.06 m/s. The limit is the same for every kind of obstacle.
LIMIT_MPS, LIMIT_EXTRA_S = 5.0 / 3.6, 20.0
IMPULSE_NS = 100.0
# CARLA's Leaderboard 2.1: what each infraction adds to the number that divides the completion.
COEFFICIENTS = {"pedestrian": 1.0, "vehicle": 0.7, "static": 0.6, "red_light": 0.4, "stop_sign": 0.25}
MINIMUM_SPEED_COEFFICIENT = 0.4
REPORTED = (
    *("end", "route_completion", "lane_invasions", "red_lights_met", "off_lane_share", "minimum_speed_share"),
    "distance_m",
)
"""Figures that the environment reports at a drive's end."""
SHOWN = (
    *("success", "route_completion", "driving_score", "collisions_per_km", "red_lights_run"),
    *("lane_invasions_per_km", "mean_speed_mps", "jerk_mps3", "reward"),
)
"""Figures that the table shows."""


@dataclass(frozen=True)
class RouteResult:
    """One drive."""

    route: str
    length_m: float
    turns: int
    end: str
    success: bool
    route_completion: float
    """0 to 1."""
    driving_score: float
    """0 to 100."""
    collisions: int
    """Collisions of any kind; ``pedestrians``, ``vehicles`` and ``statics`` count them by what was hit."""
    pedestrians: int
    vehicles: int
    statics: int
    lane_invasions: int
    red_lights: int
    """Red lights run, of ``red_lights_met``."""
    red_lights_met: int
    stop_signs: int
    off_lane_share: float
    """Share of the distance; ``minimum_speed_share`` is a share of the traffic's speed."""
    minimum_speed_share: float
    distance_m: float
    duration_s: float
    mean_speed_mps: float
    jerk_mps3: float
    """Mean absolute jerk."""
    reward: float
    steps: int


@dataclass
class Tally:
    """Running sums over the steps of one drive."""

    steps: int = 0
    reward: float = 0.0
    jerk_mps3: float = 0.0

    def add(self, reward: float, jerk_mps3: float) -> None:
        """Add one step."""
        self.steps += 1
        self.reward += reward
        self.jerk_mps3 += jerk_mps3

    def result(self, route: Route, info: dict[str, Any], step_s: float) -> RouteResult:
        """Return the drive's figures.

        Args:
            route: the route driven.
            info: of the last step.
            step_s: simulated seconds per step.
        """
        infractions: Sequence[Infraction] = info["infractions"]
        kinds = Counter(each.other if each.kind == "collision" else each.kind for each in infractions)
        duration_s = self.steps * step_s
        counted = {f"{kind}s": kinds[kind] for kind in COEFFICIENTS}
        reported: dict[str, Any] = {**{name: info[name] for name in REPORTED}, **counted}
        score = driving_score(info["route_completion"], kinds, info["off_lane_share"], info["minimum_speed_share"])
        return RouteResult(
            **reported,
            route=route.name,
            length_m=route.length_m,
            turns=route.turns,
            success=succeeded(info["end"], infractions),
            driving_score=score,
            collisions=sum(each.kind == "collision" for each in infractions),
            duration_s=duration_s,
            mean_speed_mps=info["distance_m"] / duration_s,
            jerk_mps3=self.jerk_mps3 / self.steps,
            reward=self.reward,
            steps=self.steps,
        )


def limit_s(length_m: float) -> float:
    """Return NoCrash's time limit for a route, simulated seconds."""
    return length_m / LIMIT_MPS + LIMIT_EXTRA_S


def succeeded(end: str | None, infractions: Sequence[Infraction]) -> bool:
    """Return NoCrash's success: goal reached in time, no collision above ``IMPULSE_NS``. Red lights don't matter."""
    return end == "finished" and not any(
        each.kind == "collision" and each.impulse_ns > IMPULSE_NS for each in infractions
    )


def driving_score(
    route_completion: float, kinds: Mapping[str | None, int], off_lane_share: float, minimum_speed_share: float
) -> float:
    """Return the driving score of CARLA's Leaderboard 2.1, 0 to 100.

    Args:
        route_completion: 0 to 1.
        kinds: how many infractions there are of each of ``COEFFICIENTS``.
        off_lane_share: of the metres driven, 0 to 1.
        minimum_speed_share: the car's speed as a share of the traffic's, 0 to 1.
    """
    total = sum(coefficient * kinds.get(kind, 0) for kind, coefficient in COEFFICIENTS.items())
    total += MINIMUM_SPEED_COEFFICIENT * (1.0 - minimum_speed_share)
    return 100.0 * route_completion * (1.0 - off_lane_share) / (1.0 + total)


@dataclass(frozen=True)
class Evaluation:
    """Results of one driver on a list of routes."""

    name: str
    map: str
    seed: int
    routes: tuple[RouteResult, ...]
    blocked: tuple[str, ...] = ()
    """Routes that weren't driven because their start was taken each time; no figure counts them."""

    def totals(self) -> dict[str, float]:
        """Return the number of routes, and the figures of their drives."""
        own = figures.totals([dataclasses.asdict(route) for route in self.routes])
        return {"routes": float(len(self.routes)), "blocked": float(len(self.blocked)), **own}

    @property
    def score(self) -> float:
        """The figure that ranks checkpoints: the mean driving score, 0 to 100."""
        return self.totals()["driving_score"]

    def scalars(self) -> dict[str, float]:
        """Return the totals for TensorBoard, with Stable-Baselines3's names where they exist."""
        totals = self.totals()
        steps = sum(route.steps for route in self.routes)
        return {
            **{name: value for name, value in totals.items() if name not in ("routes", "reward", "success")},
            "mean_reward": totals["reward"],
            "success_rate": totals["success"],
            "mean_ep_length": steps / max(1, len(self.routes)),
        }


def table(evaluations: Sequence[Evaluation]) -> Table:
    """Return a ``rich`` table with one column per driver."""
    towns = sorted({e.map for e in evaluations})
    most = max((len(e.routes) for e in evaluations), default=0)
    columns = {evaluation.name: figures.shown(evaluation.totals(), SHOWN) for evaluation in evaluations}
    return figures.in_columns(
        f"{most} route{'' if most == 1 else 's'} on {', '.join(towns)}", {"": columns}, _not_driven(evaluations)
    )


def _not_driven(evaluations: Sequence[Evaluation]) -> str | None:
    names = sorted({name for evaluation in evaluations for name in evaluation.blocked})
    return f"Not driven by every driver, because something stood at the start: {', '.join(names)}." if names else None


def write_json(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write totals and routes of every driver, completely or not at all."""
    plain = [{**dataclasses.asdict(e), "totals": e.totals()} for e in evaluations]
    _write(path, json.dumps(plain, indent=2) + "\n")


def write_csv(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write one line per driver and route, completely or not at all."""
    fields = ["driver", "map", "seed", *(f.name for f in dataclasses.fields(RouteResult))]
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for evaluation in evaluations:
        head: dict[str, Any] = {"driver": evaluation.name, "map": evaluation.map, "seed": evaluation.seed}
        writer.writerows({**head, **dataclasses.asdict(result)} for result in evaluation.routes)
    _write(path, text.getvalue())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
