"""How much faster do several collectors collect? Steps a second of 1, 2 and 4 trainings' collectors, turn by turn.

Each collector drives in its own carla-lite, whose ticks take at least as long as CARLA's on a GPU (``--tick-ms``), so
that the simulators wait and not the processors. All trainings have the same ratio of updates to steps. The figures are
the medians of the turns' ratios to one collector. With ``--ray 3`` the same trainings also take turns on a Ray cluster
of three more nodes on this machine, and are compared with as many local collectors. The learner's share of a core tells
whether the collectors wait for it. Run: ``python benchmarks/collectors.py --json``, once with ``--ray 3 --counts 1,4``,
once with ``--tick-ms 0``.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from measuring import machine, spread
from ray_nodes import add_node, ray_cluster
from trainings import DISTURBED_CORES, Rates, figures, starting, undisturbed

HERE, RAY = "local", "ray"


def main(
    counts: Annotated[
        str, typer.Option(help="Numbers of collectors, separated by commas. All are compared with 1.")
    ] = "1,2,4",
    tick_ms: Annotated[
        float, typer.Option(min=0, help="Shortest duration of a simulator's tick, in milliseconds.")
    ] = 30.0,
    ray: Annotated[int, typer.Option(min=0, help="Nodes of a Ray cluster to measure as well; 0 for none.")] = 0,
    ratio: Annotated[float, typer.Option(min=0, help="Updates per environment step.")] = 0.05,
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 64,
    seconds: Annotated[float, typer.Option(min=2, help="Length of a turn, in seconds.")] = 10.0,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 5,
    warm_up: Annotated[float, typer.Option(min=1, help="Warm-up of each variant, in seconds.")] = 10.0,
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    config: Annotated[Path, typer.Option(help="Agent configuration: a preset or a YAML file.")] = Path("full"),
    busy: Annotated[
        float, typer.Option(help="Largest load of other programs, in cores, at which a turn counts.")
    ] = DISTURBED_CORES,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure steps a second by the number of collectors."""
    wanted = sorted({1, *(int(count) for count in counts.split(","))})
    settings = {
        "td3.batch_size": batch,
        "training.updates_per_step": max(ratio, 1e-6),
        "training.learner_threads": 1,
        "environment.time_limit.constant_s": 1000,  # a reset isn't a tick
    }
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(ray_cluster(directory)) if ray else None
        for _ in range(ray):
            add_node(cluster, -(-sum(wanted) // ray))
        start = stack.enter_context(starting(config, map, warm_up, settings))
        places = {HERE: None} if cluster is None else {HERE: None, RAY: cluster.address}
        started = {
            (where, count): start(f"{where}-{count}", {}, collectors=count, tick_ms=tick_ms, cluster=address)
            for where, address in places.items()
            for count in wanted
        }
        turns = undisturbed(started, seconds, repeats, busy)
    report: dict[str, Any] = {
        "what": "steps a second of several collectors, each in its own simulator, over those of one",
        "tick_ms": tick_ms,
        "ray_nodes": ray,
        "updates_per_step": ratio,
        "batch": batch,
        "map": map,
        "seconds": seconds,
        "repeats": repeats,
        **{where: {str(count): _figures(turns, where, count) for count in wanted} for where in places},
        "machine": machine("torch", "carla", "numpy"),
    }
    print(json.dumps(report, indent=2, ensure_ascii=False) if as_json else _text(report))


def _figures(turns: list[dict[tuple[str, int], Rates]], where: str, count: int) -> dict[str, Any]:
    def over(place: str, number: int) -> dict[str, float]:
        return spread([turn[where, count].steps_per_s / turn[place, number].steps_per_s for turn in turns])

    return {
        "to_one": over(where, 1),
        **({"to_local": over(HERE, count)} if where == RAY else {}),
        "learner_idle": spread([1 - turn[where, count].learner_cores for turn in turns]),
        **figures(turn[where, count] for turn in turns),
    }


def _text(report: dict[str, Any]) -> str:
    return "\n".join(
        f"{where}, {count} collectors: {found['steps_per_s']['median']} steps/s, {found['to_one']['median']} × one"
        + (f", {found['to_local']['median']} × as many local ones" if "to_local" in found else "")
        + f"; the learner is idle for {found['learner_idle']['median']:.0%}"
        for where in (HERE, RAY)
        for count, found in report.get(where, {}).items()
    )


if __name__ == "__main__":
    typer.run(main)
