"""Do collecting and updating overlap? Both processes together, compared with the slower one running alone, on two
cores.

Server and collector are pinned to one core, a learner with one thread to the other, also when they run alone. All are
real trainings: *collecting* alone makes no update, *updating* alone takes no step. The others keep a ratio of updates
to steps: the given ones, and the one at which both alone are equally fast, where waiting costs most. They take turns;
the figure is the median of the turns' ratios to the slower one alone, in steps per second. Run: ``python
benchmarks/overlap.py --batch 64 --json``.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from measuring import machine, spread
from trainings import FILLED, Pinned, Rates, figures, starting, undisturbed

_COLLECTING = {"training.updates_per_step": 1e-6}
_UPDATING = {"training.updates_per_step": 20, "training.warmup_steps": 0, "training.total_steps": FILLED}


def main(
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 64,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of the encoder.")] = "float32",
    ratios: Annotated[
        str, typer.Option(help="Updates per step, separated by commas; the balanced number is added.")
    ] = "1",
    seconds: Annotated[float, typer.Option(min=2, help="Length of a turn, in seconds.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 5,
    warm_up: Annotated[float, typer.Option(min=1, help="Warm-up of each variant, in seconds.")] = 5.0,
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    config: Annotated[Path, typer.Option(help="Agent configuration: a preset or a YAML file.")] = Path("full"),
    cores: Annotated[str, typer.Option(help="Cores of the simulation and the learner, separated by a comma.")] = "0,1",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure how much of the slower process's rate is left when both run."""
    simulation, learner = (int(core) for core in cores.split(","))
    fixed = {"td3.batch_size": batch, "td3.precision": precision, "training.learner_threads": 1}
    pinned = Pinned(simulation, learner)
    with starting(config, map, warm_up, fixed) as start:
        alone = {"collecting": _COLLECTING, "updating": _UPDATING}
        started = {name: start(name, settings, pinned=pinned) for name, settings in alone.items()}
        first = undisturbed(started, seconds, 1)[0]
        balanced = float(f"{first['updating'].updates_per_s / first['collecting'].steps_per_s:.2g}")
        paced = [*dict.fromkeys([*(float(ratio) for ratio in ratios.split(",")), balanced])]
        for ratio in paced:
            started[str(ratio)] = start(f"both-{ratio}", {"training.updates_per_step": ratio}, pinned=pinned)
        turns = undisturbed(started, seconds, repeats)
    report = {
        "what": "steps a second of collecting and updating at once, over those of the slower of the two alone",
        "batch": batch,
        "precision": precision,
        "pinned": "server and collector to one core, a learner of one thread to another",
        "map": map,
        "seconds": seconds,
        "repeats": repeats,
        "alone": {name: figures(turn[name] for turn in turns) for name in alone},
        "balanced_updates_per_step": balanced,
        "by_updates_per_step": {str(ratio): _overlap(ratio, turns) for ratio in paced},
        "machine": machine("torch", "carla", "numpy"),
    }
    print(json.dumps(report, indent=2, ensure_ascii=False) if as_json else _text(report))


def _overlap(ratio: float, turns: list[dict[str, Rates]]) -> dict[str, Any]:
    found, shares = [turn[str(ratio)] for turn in turns], []
    for turn, both in zip(turns, found, strict=True):
        slower = min(turn["collecting"].steps_per_s, turn["updating"].updates_per_s / ratio)
        # The mean: within a turn either may fall behind or ahead by training.max_lead_steps.
        shares.append(statistics.mean((both.steps_per_s, both.updates_per_s / ratio)) / slower)
    return {"ratio": spread(shares), **figures(found)}


def _text(report: dict[str, Any]) -> str:
    by_ratio = report["by_updates_per_step"].items()
    return "\n".join(
        f"{ratio} updates a step: {found['ratio']['median']} of the slower alone" for ratio, found in by_ratio
    )


if __name__ == "__main__":
    typer.run(main)
