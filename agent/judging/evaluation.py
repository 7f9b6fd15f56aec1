"""Drives routes and measures: success, completion, driving score, collisions, comfort; per route and in total.

Owns the figures and their files (table, CSV, JSON). Writes no replay, draws no training route: it uses the
environment it is given and its own list of routes.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from agent.env.driving import DrivingEnv
from agent.env.route import Route
from agent.env.session import BlockedStart
from agent.judging.baselines import Driver
from contract.files import write_whole

# CARLA leaderboard: the driving score is the completion times the penalty of each infraction.
PENALTIES = {"vehicle": 0.6, "static": 0.65, "pedestrian": 0.5}
LOSSES_A_ROUTE = 3
ROUNDS = 3
"""How often a route is tried whose start is taken; between two tries the others are driven."""


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
    lane_invasions: int
    distance_m: float
    duration_s: float
    mean_speed_mps: float
    jerk_mps3: float
    """Mean absolute jerk."""
    reward: float
    steps: int


@dataclass(frozen=True)
class Evaluation:
    """What a driver did on a list of routes."""

    name: str
    map: str
    seed: int
    routes: tuple[RouteResult, ...]
    blocked: tuple[str, ...] = ()
    """Routes that weren't driven, for something stood on their starts each time; no figure counts them."""

    def totals(self) -> dict[str, float]:
        """Return means over routes; collisions and lane invasions a driven kilometre."""
        count = max(len(self.routes), 1)
        metres = sum(r.distance_m for r in self.routes)
        seconds = sum(r.duration_s for r in self.routes)
        per_km = 1000.0 / metres if metres > 0 else 0.0
        return {
            "routes": float(len(self.routes)),
            "blocked": float(len(self.blocked)),
            "success": sum(r.success for r in self.routes) / count,
            "route_completion": sum(r.route_completion for r in self.routes) / count,
            "driving_score": sum(r.driving_score for r in self.routes) / count,
            "collisions_per_km": sum(r.collisions for r in self.routes) * per_km,
            "lane_invasions_per_km": sum(r.lane_invasions for r in self.routes) * per_km,
            "mean_speed_mps": metres / seconds if seconds > 0 else 0.0,
            "jerk_mps3": sum(r.jerk_mps3 for r in self.routes) / count,
            "reward": sum(r.reward for r in self.routes) / count,
            "distance_km": metres / 1000.0,
        }


def evaluate(env: DrivingEnv, driver: Driver, routes: Sequence[Route], name: str, seed: int = 0) -> Evaluation:
    """Drive every route once and return the figures; a route lost with the simulator is repeated.

    A route whose start is taken comes once more after the others, and is named if it is taken each time.

    Args:
        env: the environment itself (``gymnasium.make(...).unwrapped``).
        name: of the driver, for tables.
        seed: that the routes were drawn with; noted in the result, nothing is drawn here.

    Raises:
        BlockedStart: of no route was the start ever free.
        NoSimulator: the simulator is gone for longer than its patience.
        RuntimeError: one route lost the simulator ``LOSSES_A_ROUTE`` times.
    """
    results: dict[int, RouteResult] = {}
    for _ in range(ROUNDS):
        for number in [number for number in range(len(routes)) if number not in results]:
            try:
                results[number] = _drive_again_if_lost(env, driver, routes[number])
            except BlockedStart as blocked:
                last = blocked
    if routes and not results:
        raise last
    left = tuple(route.name for number, route in enumerate(routes) if number not in results)
    return Evaluation(name, env.planner.name, seed, tuple(results[number] for number in sorted(results)), left)


def drive(env: DrivingEnv, driver: Driver, route: Route) -> RouteResult | None:
    """Drive one route; None if the simulator was lost on the way."""
    observation, info = env.reset(options={"route": route})
    tally = _Tally()
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(driver.act(observation, env.state))
        tally.add(reward, info["jerk_mps3"])
        over = terminated or truncated
    return None if info["simulator_lost"] else _result(route, info, tally, env.session.config.fixed_delta_s)


def table(evaluations: Sequence[Evaluation]) -> Table:
    """Return the drivers side by side, a line each, for ``rich``."""
    town = ", ".join(sorted({e.map for e in evaluations}))
    most = max((len(e.routes) for e in evaluations), default=0)
    view = Table(title=f"{most} routes on {town}", caption=_not_driven(evaluations))
    view.add_column("driver")
    for column in ("success", "completion", "driving score", "collisions/km", "lane inv./km", "m/s", "jerk", "reward"):
        view.add_column(column, justify="right")
    for evaluation in evaluations:
        t = evaluation.totals()
        view.add_row(
            evaluation.name,
            f"{t['success']:.0%}",
            f"{t['route_completion']:.1%}",
            f"{t['driving_score']:.1f}",
            f"{t['collisions_per_km']:.2f}",
            f"{t['lane_invasions_per_km']:.1f}",
            f"{t['mean_speed_mps']:.1f}",
            f"{t['jerk_mps3']:.1f}",
            f"{t['reward']:.1f}",
        )
    return view


def _not_driven(evaluations: Sequence[Evaluation]) -> str | None:
    names = sorted({name for evaluation in evaluations for name in evaluation.blocked})
    return f"Not driven by all, for something stood on the start: {', '.join(names)}." if names else None


def write_json(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write totals and routes of every driver, whole or not at all."""
    plain = [{**dataclasses.asdict(e), "totals": e.totals()} for e in evaluations]
    _write(path, json.dumps(plain, indent=2) + "\n")


def write_csv(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write one line a driver and route, whole or not at all."""
    fields = ["driver", "map", "seed", *(f.name for f in dataclasses.fields(RouteResult))]
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for evaluation in evaluations:
        head: dict[str, Any] = {"driver": evaluation.name, "map": evaluation.map, "seed": evaluation.seed}
        writer.writerows({**head, **dataclasses.asdict(result)} for result in evaluation.routes)
    _write(path, text.getvalue())


def _drive_again_if_lost(env: DrivingEnv, driver: Driver, route: Route) -> RouteResult:
    for _ in range(LOSSES_A_ROUTE):
        result = drive(env, driver, route)
        if result is not None:
            return result
    raise RuntimeError(
        f"The simulator at {env.session.address} was lost {LOSSES_A_ROUTE} times on route {route.name}: see its log."
    )


@dataclass
class _Tally:
    """Sums over the steps of a drive."""

    steps: int = 0
    reward: float = 0.0
    jerk_mps3: float = 0.0

    def add(self, reward: float, jerk_mps3: float) -> None:
        self.steps += 1
        self.reward += reward
        self.jerk_mps3 += jerk_mps3


def _result(route: Route, info: dict[str, Any], tally: _Tally, step_s: float) -> RouteResult:
    penalty = PENALTIES[info["collision_with"]] if info["collision"] else 1.0
    return RouteResult(
        route=route.name,
        length_m=route.length_m,
        turns=route.turns,
        end=info["end"],
        success=info["success"],
        route_completion=info["route_completion"],
        driving_score=100.0 * info["route_completion"] * penalty,
        collisions=int(info["collision"]),
        lane_invasions=info["lane_invasions"],
        distance_m=info["distance_m"],
        duration_s=tally.steps * step_s,
        mean_speed_mps=info["distance_m"] / (tally.steps * step_s),
        jerk_mps3=tally.jerk_mps3 / tally.steps,
        reward=tally.reward,
        steps=tally.steps,
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
