"""Does it learn? Train several seeds on one generated town, evaluate on held-out routes of another.

Run: ``python benchmarks/learning.py --json > benchmarks/results/learning.json``. Each seed trains against a carla-lite
of its own and is judged on the same routes as the stop, random and PID drivers. The intervals are bootstrap 95 %
intervals of mean route completion: routes are drawn anew within each seed, 10 000 times. A run that was interrupted
goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from lite_server import lite_server
from measuring import machine
from rich.console import Console
from rich.table import Table

RESAMPLES = 10_000
DRIVERS = ("td3", "stop", "random", "pid")
FIGURES = ("success", "route_completion", "driving_score", "collisions_per_km", "mean_speed_mps")


def main(
    seeds: Annotated[str, typer.Option(help="Seeds, commas between.")] = "0,1,2",
    config: Annotated[Path, typer.Option(help="Agent configuration.")] = Path("config/td3_config_50k.yaml"),
    train_map: Annotated[str, typer.Option(help="Map trained on.")] = "Lite01",
    test_map: Annotated[str, typer.Option(help="Map judged on.")] = "Lite02",
    routes: Annotated[int, typer.Option(help="Held-out routes judged on.")] = 20,
    min_turns: Annotated[int, typer.Option(help="Junction turns that each of them has.")] = 2,
    runs: Annotated[Path, typer.Option(help="Where the runs go.")] = Path("runs/learning"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    judged = []
    for seed in (int(text) for text in seeds.split(",")):
        run = runs / f"{config.stem}-{Path(train_map).stem}-seed-{seed}"
        train(config, run, train_map, seed)
        judged.append(judge(run, test_map, routes, min_turns))
    report = {
        "machine": machine("torch", "carla", "numpy"),
        "command": "python " + " ".join(sys.argv),
        "train_map": train_map,
        "test_map": test_map,
        "routes": routes,
        "min_turns": min_turns,
        "seeds": seeds,
        "drivers": {driver: summary(judged, driver) for driver in DRIVERS},
    }
    print(json.dumps(report, indent=2)) if as_json else Console().print(table(report))


def train(config: Path, run: Path, town: str, seed: int) -> None:
    """Train one seed to its end, or go on with it; what it prints goes to stderr."""
    with lite_server(town, seed) as port:
        agent(port, "train", "--config", str(config), "--run-dir", str(run), "--seed", str(seed), "--resume")


def judge(run: Path, town: str, routes: int, min_turns: int) -> dict[str, Any]:
    """Return the evaluation of one trained seed and the baselines, by driver."""
    result = run / f"evaluation-{Path(town).stem}.json"
    with lite_server(town) as port:
        options = ["--routes", str(routes), "--min-turns", str(min_turns), "--drivers", ",".join(DRIVERS)]
        # The routes are those of seed 0 for every trained seed, so that all are asked the same question.
        agent(port, "evaluate", "--checkpoint", str(run), *options, "--seed", "0", "--json", str(result))
    return {entry["name"]: entry for entry in json.loads(result.read_text(encoding="utf-8"))}


def agent(port: int, *arguments: str) -> None:
    """Run one of the agent's commands against the server on ``port``; its failure ends the benchmark."""
    environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)}
    command = [sys.executable, "-m", "agent", *arguments]
    code = subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode
    if code:
        raise SystemExit(f"{' '.join(command[2:])} ended with {code}: its own words are above.")


def summary(judged: list[dict[str, Any]], driver: str) -> dict[str, Any]:
    """Return a driver's figures: each seed's, their mean, and the interval of mean route completion."""
    seeds = [entry[driver] for entry in judged]
    completion = np.array([[route["route_completion"] for route in seed["routes"]] for seed in seeds])
    low, high = bootstrap(completion, np.random.default_rng(0))
    means = {figure: float(np.mean([seed["totals"][figure] for seed in seeds])) for figure in FIGURES}
    by_seed = [round(float(mean), 4) for mean in completion.mean(axis=1)]
    return {**means, "route_completion_95": [low, high], "route_completion_by_seed": by_seed}


def bootstrap(values: np.ndarray[Any, np.dtype[np.float64]], rng: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of ``values`` (seeds, routes), resampled within seeds."""
    seeds, routes = values.shape
    drawn = rng.integers(0, routes, size=(RESAMPLES, seeds, routes))
    means = values[np.arange(seeds)[:, None], drawn].mean(axis=(1, 2))
    low, high = np.percentile(means, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def table(report: dict[str, Any]) -> Table:
    """Return the drivers side by side."""
    view = Table(title=f"{report['routes']} routes with ≥ {report['min_turns']} turns on {report['test_map']}")
    for column in ("driver", "completion", "95 %", "by seed", "success", "driving score", "collisions/km", "m/s"):
        view.add_column(column)
    for driver, figures in report["drivers"].items():
        low, high = figures["route_completion_95"]
        view.add_row(
            driver,
            f"{figures['route_completion']:.3f}",
            f"{low:.3f}–{high:.3f}",
            " ".join(f"{mean:.2f}" for mean in figures["route_completion_by_seed"]),
            f"{figures['success']:.0%}",
            f"{figures['driving_score']:.1f}",
            f"{figures['collisions_per_km']:.2f}",
            f"{figures['mean_speed_mps']:.1f}",
        )
    return view


if __name__ == "__main__":
    typer.run(main)
