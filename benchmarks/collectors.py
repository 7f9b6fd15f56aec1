"""How much faster do several collectors collect? Steps a second of 1, 2 and 4 trainings' collectors, turn by turn.

Each collector drives in a carla-lite of its own, whose ticks take at least as long as a card's would (``--tick-ms``),
so that simulators wait and processors don't; each training learns at the same ratio of updates to steps. The figure is
the median of the turns' ratios to one collector; the learner's share of a core tells whether they wait for it.
Run: ``python benchmarks/collectors.py --tick-ms 30 --json``.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from measuring import machine, spread
from trainings import FIGURES, Pinned, TrainingInTurns, training, undisturbed


def main(
    counts: Annotated[
        str, typer.Option(help="Collectors, commas between; 1 is what the others are compared to.")
    ] = "1,2,4",
    tick_ms: Annotated[float, typer.Option(min=0, help="What a tick takes at least.")] = 30.0,
    ratio: Annotated[float, typer.Option(min=0, help="Updates a step.")] = 0.05,
    batch: Annotated[int, typer.Option(min=1, help="Transitions an update.")] = 64,
    seconds: Annotated[float, typer.Option(min=2, help="A turn.")] = 10.0,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 5,
    warm_up: Annotated[float, typer.Option(min=1, help="Seconds of each before the first turn.")] = 10.0,
    map: Annotated[str, typer.Option(help="Map name or .xodr path.")] = "Lite01",
    config: Annotated[Path, typer.Option(help="Agent configuration.")] = Path("config/td3_config.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure steps a second by the number of collectors."""
    wanted = sorted({1, *(int(count) for count in counts.split(","))})
    settings = {
        "td3.batch_size": batch,
        "training.updates_per_step": max(ratio, 1e-6),
        "training.learner_threads": 1,
        "environment.time_limit.constant_s": 1000,  # a reset is no tick
    }
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(count: int) -> TrainingInTurns:
            begun = training(directory, f"n{count}", config, settings, Pinned(), map, count, tick_ms)
            started = stack.enter_context(begun)
            started.warm_up(warm_up)
            return started

        turns = undisturbed({count: start(count) for count in wanted}, seconds, repeats)
    report: dict[str, Any] = {
        "what": "steps a second of several collectors, each in a simulator of its own, over those of one",
        "tick_ms": tick_ms,
        "updates_per_step": ratio,
        "batch": batch,
        "map": map,
        "seconds": seconds,
        "repeats": repeats,
        "by_collectors": {
            str(count): {
                "ratio": spread([turn[count].steps_per_s / turn[1].steps_per_s for turn in turns]),
                "learner_idle": spread([1 - turn[count].learner_cores for turn in turns]),
                **{name: spread([getattr(turn[count], name) for turn in turns]) for name in FIGURES},
            }
            for count in wanted
        },
        "machine": machine("torch", "carla", "numpy"),
    }
    print(json.dumps(report, indent=2, ensure_ascii=False) if as_json else _text(report))


def _text(report: dict[str, Any]) -> str:
    return "\n".join(
        f"{count} collectors: {found['steps_per_s']['median']} steps/s, {found['ratio']['median']} × one; "
        f"the learner is idle for {found['learner_idle']['median']:.0%}"
        for count, found in report["by_collectors"].items()
    )


if __name__ == "__main__":
    typer.run(main)
