"""How many threads should the learner have if it shares two cores with the simulator?

Real trainings, not pinned, that differ only in ``training.learner_threads``, take turns: once with a simulator that
never waits (``busy``: steps run ahead without limit, updates are always owed), once at the given ratios of updates to
steps. Run: ``python benchmarks/threads.py --batch 64 --json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from measuring import machine
from trainings import figures, starting, undisturbed

_BUSY = {"training.updates_per_step": 20, "training.max_lead_steps": 10**9}


def main(
    threads: Annotated[str, typer.Option(help="Of the learner, commas between.")] = "1,2",
    ratios: Annotated[str, typer.Option(help="Updates a step, commas between; busy is measured too.")] = "1",
    batch: Annotated[int, typer.Option(min=1, help="Transitions an update.")] = 64,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Of the encoder.")] = "float32",
    seconds: Annotated[float, typer.Option(min=2, help="A turn.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 5,
    warm_up: Annotated[float, typer.Option(min=1, help="Seconds of each before the first turn.")] = 5.0,
    map: Annotated[str, typer.Option(help="Map name or .xodr path.")] = "Lite01",
    config: Annotated[Path, typer.Option(help="Agent configuration.")] = Path("full"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure steps and updates a second by the learner's threads."""
    modes: dict[str, dict[str, Any]] = {
        "busy": _BUSY,
        **{ratio: {"training.updates_per_step": float(ratio)} for ratio in ratios.split(",")},
    }
    counts = [int(count) for count in threads.split(",")]
    with starting(config, map, warm_up, {"td3.batch_size": batch, "td3.precision": precision}) as start:
        started = {
            (mode, count): start(f"{mode}-{count}", {"training.learner_threads": count, **settings})
            for mode, settings in modes.items()
            for count in counts
        }
        turns = undisturbed(started, seconds, repeats)
    report: dict[str, Any] = {
        "what": "steps and updates a second of trainings that differ in the learner's threads, nothing pinned",
        "batch": batch,
        "precision": precision,
        "map": map,
        "seconds": seconds,
        "repeats": repeats,
        "by_updates_per_step": {
            mode: {f"{count} threads": figures(turn[mode, count] for turn in turns) for count in counts}
            for mode in modes
        },
        "machine": machine("torch", "carla", "numpy"),
    }
    print(json.dumps(report, indent=2) if as_json else json.dumps(report["by_updates_per_step"], indent=2))


if __name__ == "__main__":
    typer.run(main)
