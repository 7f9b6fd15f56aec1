"""``make soak``: the full sweeps, a line and a record an instant; exit 1 if anything was lost or didn't go on."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from measuring import machine, spread
from ray_nodes import add_node, ray_cluster

from tests.soak import cluster as on_cluster
from tests.soak.instants import CHAIN, Victim
from tests.soak.sweep import Outcome, sweep, undisturbed
from tests.soak.witness import Witness

RESULTS = Path("benchmarks/results/soak.json")
REFERENCE_STEPS = 600
"""Limit in the undisturbed run; few runs have more at their first fault."""


def main(
    learner: Annotated[int, typer.Option(help="Instants at which the learner is killed.")] = 50,
    simulator: Annotated[int, typer.Option(help="Instants at which the simulator is killed.")] = 20,
    collector: Annotated[int, typer.Option(help="Instants at which the collector is killed, aborts or hangs.")] = 20,
    cluster: Annotated[
        int,
        typer.Option(help="Instants at which a Ray cluster's simulator, actor, raylet and learner are killed each."),
    ] = 0,
    first: Annotated[
        int, typer.Option(help="Number of the cluster's first run. It draws the instants, so a sweep can be split.")
    ] = 0,
    results: Annotated[Path, typer.Option(help="Folder for the record.")] = RESULTS,
) -> None:
    wanted = {Victim.LEARNER: learner, Victim.SIMULATOR: simulator, Victim.COLLECTOR: collector}
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for found, wrong in itertools.chain(_sweep(wanted), _sweep_cluster(cluster, first) if cluster else ()):
        outcomes += found
        failed += wrong + [problem for outcome in found for problem in outcome.problems]
        typer.echo("\n".join(map(_line, found)))
        # After each run: what was shown stays when an hour's sweep is ended before its last one.
        record = {"machine": machine("torch", "carla"), "sums": _sums(outcomes), "problems": failed}
        results.write_text(json.dumps({**record, "instants": [asdict(each) for each in outcomes]}, indent=1) + "\n")
    typer.echo(f"{len(outcomes)} instants, {sum(each.lost for each in outcomes)} transitions lost; {results}")
    for problem in failed:
        typer.echo(problem, err=True)
    raise typer.Exit(1 if failed else 0)


def _sweep(wanted: Mapping[Victim, int]) -> Iterator[tuple[list[Outcome], list[str]]]:
    """Yield of each run what each fault did, chains rounded up to whole ones, and what was wrong at its end."""
    reference: Witness | None = None
    for victim, count in wanted.items():
        for number in range(-(-count // CHAIN)):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                if victim is Victim.LEARNER and reference is None:
                    reference = undisturbed(folder / "undisturbed", REFERENCE_STEPS)
                found, problems = sweep(victim, number, folder, reference if victim is Victim.LEARNER else None)
            yield found, [f"{victim.value}, run {number}: {problem}" for problem in problems]


def _sweep_cluster(count: int, first: int) -> Iterator[tuple[list[Outcome], list[str]]]:
    """Yield the sweeps of runs on a cluster, in each of which a victim of each kind dies."""
    with tempfile.TemporaryDirectory() as name, ray_cluster(Path(name)) as cluster:
        for _ in range(on_cluster.COLLECTORS):
            add_node(cluster)
        for number in range(first, first + count):
            found, problems = on_cluster.sweep(cluster, Path(name) / str(number), number)
            yield found, [f"cluster, run {number}: {problem}" for problem in problems]


def _line(outcome: Outcome) -> str:
    words = f"{outcome.victim} {outcome.seed}: {outcome.death} while {outcome.moment} ({outcome.collector})"
    return f"{words}, {outcome.lost} of {outcome.steps_before} steps lost, going on after {outcome.again_s} s"


def _sums(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return by victim: instants, losses, seconds to the next step, and the updates that a learner made twice."""
    sums: dict[str, Any] = {}
    for victim in dict.fromkeys(outcome.victim for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.victim == victim]
        sums[victim] = {
            "instants": len(mine),
            "transitions_lost": sum(outcome.lost for outcome in mine),
            "ghosts": sum(outcome.ghosts for outcome in mine),
            "half_written_checkpoints": sum(outcome.saving for outcome in mine),
            "most_updates_repeated": max(outcome.updates_repeated or 0 for outcome in mine),
            "again_s": spread([outcome.again_s for outcome in mine if outcome.again_s is not None] or [0.0]),
        }
    return sums


if __name__ == "__main__":
    typer.run(main)
