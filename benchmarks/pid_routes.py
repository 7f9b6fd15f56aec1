"""Sanity check of environment and maps: the share of routes that the PID driver completes without traffic.

Run: ``python benchmarks/pid_routes.py --map Lite01 --map Lite02 --routes 20 --json``. A map is a name or the path of
an .xodr file; each map gets its own carla-lite.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer
from lite_server import lite_server
from measuring import leave, machine
from rich.console import Console

from carla_td3.config import EnvironmentConfig, SimulatorConfig, TimeLimitConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.route import Route
from carla_td3.evaluation.metrics import Evaluation, table
from carla_td3.evaluation.observed_driver import ObservedDriver
from carla_td3.evaluation.routes import completed, evaluate
from carla_td3.telemetry.progress import ProgressLine


def main(
    map: Annotated[
        list[str] | None, typer.Option(help="Name of a map, or path of an .xodr file; can be repeated.")
    ] = None,
    routes: Annotated[int, typer.Option(help="Routes per map.")] = 20,
    turns: Annotated[int, typer.Option(help="Smallest number of junction turns per route.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the routes.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    evaluations = [_drive(name, routes, turns, seed) for name in map or ["Lite01", "Lite02"]]
    if as_json:
        print(json.dumps({"machine": machine("carla", "numpy"), "maps": [_report(e) for e in evaluations]}, indent=2))
    else:
        Console().print(table(evaluations))
    leave()


def _drive(map_name: str, count: int, turns: int, seed: int) -> Evaluation:
    config = EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=200))
    with lite_server(map_name) as port:
        env = DrivingEnv(config, SimulatorConfig(host="127.0.0.1", port=port), seed)
        rng = np.random.default_rng(seed)
        drawn: list[Route] = [env.planner.sample(rng, config.route, "train", turns) for _ in range(count)]
        name = f"pid on {env.planner.name}"
        with ProgressLine(count, Console(stderr=True), name, "routes") as line:
            pid = ObservedDriver(name, PidPurePursuit(), lambda _, route: line.move(route - 1))
            evaluation = completed(evaluate(env, pid, drawn, name, seed))
        env.close()
    return evaluation


def _report(evaluation: Evaluation) -> dict[str, Any]:
    failed = [f"{r.route}: {r.end} at {r.route_completion:.0%}" for r in evaluation.routes if not r.success]
    return {"map": evaluation.map, "seed": evaluation.seed, **evaluation.totals(), "failed": failed}


if __name__ == "__main__":
    typer.run(main)
