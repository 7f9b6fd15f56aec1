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
    threads: Annotated[str, typer.Option(help="Numbers of the learner's threads, separated by commas.")] = "1,2",
    ratios: Annotated[str, typer.Option(help="Updates per step, separated by commas; busy is measured as well.")] = "1",
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 64,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of the encoder.")] = "float32",
    seconds: Annotated[float, typer.Option(min=2, help="Length of a turn, in seconds.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 5,
    warm_up: Annotated[float, typer.Option(min=1, help="Warm-up of each variant, in seconds.")] = 5.0,
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    config: Annotated[Path, typer.Option(help="Agent configuration: a preset or a YAML file.")] = Path("full"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
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
