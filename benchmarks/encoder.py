"""Measures what an encoder recognises in towns that it hasn't seen, on recorded rows, without driving.

A row has the simulator's privileged numbers besides the picture. ``python -m carla_td3 record --driver expert-shoved
--seed 77 --set 'training.towns.maps=["Lite:seed=900,size=400"]' --out runs/judged`` records rows of another town; then
``python benchmarks/encoder.py --judged runs/judged --run runs/learning/td3/seed-0`` measures how well that run's newest
checkpoint predicts them, and those of the run's rows. With ``--updates 1000,5000`` a new learner is trained on the rows
of the run and its demonstrations, drawn uniformly, and measured on the way. That separates the effect of the rows from
the effect of the order in which the run met them. ``--set`` changes the learner; ``--keep`` saves it as a checkpoint
for ``driving.py``, to measure the worth of a teacher on the same rows. ``--hide target_speed`` tells a learner that
sees the privileged numbers all but this one. Finished runs have rows only if ``learning.py --keep-rows`` trained them;
without rows, as of a kept policy, only the judged ones are predicted.

The figures: R² (1 perfect, 0 no better than the mean, below 0 worse), for red against green lights the area under the
ROC curve (0.5 chance, 1 perfect), and the pedal where the expert brakes. ``person`` is the area for the pedal where the
expert, on the move, brakes for a person and for nothing else, against a free road. ``person_braked`` is the share of
those rows where the policy brakes harder than in all but a twentieth of the free ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from learning import outlive
from measuring import counted, machine
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from carla_run.paths import RunPaths
from carla_td3 import config as configuration
from carla_td3.cli import evaluation
from carla_td3.cli.options import parsed
from carla_td3.config import AgentConfig
from carla_td3.env import privileged
from carla_td3.memory import heap
from carla_td3.td3.algorithm import Algorithm, configured
from carla_td3.td3.networks import Networks, Policy
from carla_td3.td3.replay.frames import ACTION, LISTED
from carla_td3.td3.replay.sampling import Source
from carla_td3.trainer import checkpoint
from carla_td3.trainer.batches import Batches, demonstrations
from carla_td3.trainer.learner import architecture
from carla_td3.trainer.pacing import learning_rate_factor

TOLD = ("lead_near", "light_red", "light_green", "walker_near", "target_speed")
BATCH, BATCHES = 128, 90
"""Rows in a batch of the evaluation, and number of batches."""
BRAKES = -0.1
"""The expert brakes if its pedal is below this."""
MOVES, CAR_NEAR, SIGN_NEAR = 0.2, 0.6, 0.5
"""Privileged numbers from which the car moves (2 m/s), and a car (24 m) or stop sign (30 m) is no free road."""
FALSE_ALARMS = 0.05


@dataclass(frozen=True)
class Seen:
    """Rows, and a learner's predictions for them: told (n, P) beside known (n, P), acted (n, 2).

    Without an auxiliary loss, ``told`` is empty.
    """

    told: NDArray[np.float32] | None
    known: NDArray[np.float32]
    acted: NDArray[np.float32]


def main(
    judged: Annotated[
        Path, typer.Option(help="Folder that `carla-td3 record` wrote, in towns that were not used in training.")
    ],
    run: Annotated[Path, typer.Option(help="Run that the rows and the configuration are taken from.")],
    updates: Annotated[
        str, typer.Option(help="Train a new learner, and judge it after these numbers of updates, separated by commas.")
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE for the new learner; can be repeated.")
    ] = None,
    hide: Annotated[
        str, typer.Option(help="Privileged numbers to hide from a new learner that sees these, separated by commas.")
    ] = "",
    keep: Annotated[
        Path | None, typer.Option(help="Folder for the new learner's checkpoint: its configuration and policy.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Judge a run's checkpoint, or a new learner trained on its rows."""
    torch.set_num_threads(threads)
    heap.keep()
    paths = RunPaths(run)
    config = configuration.load(paths.config, parsed(settings or ()))
    for option, value in (("--keep", keep), ("--hide", hide)):
        if value and not updates:
            raise SystemExit(f"{option} {value}: is for a new learner; give its numbers of updates with --updates.")
    rings = {"own": rows_of(run, config)} if paths.replay.exists() else {}
    rings["judged"] = rows_of(judged, config)
    learner = configured(config, torch.device("cpu"))
    if hide:
        hide_from(learner, hide.split(","))
    found = []
    for made, policy in trained(learner, config, rings["own"], updates) if updates else kept(learner, config, paths):
        found += [{"updates": made, "rows": name, **figures(seen(policy, ring))} for name, ring in rings.items()]
    if keep is not None:
        outlive(config, learner.online, RunPaths(keep))
    report = {"machine": machine("torch", "numpy"), "command": "python " + " ".join(sys.argv), "found": found}
    print(json.dumps(report, indent=2)) if as_json else Console().print(table(found))


def rows_of(folder: Path, config: AgentConfig) -> Source:
    """Return the rows that a run or a recording holds, as a training would learn from them."""
    shown = config.replay.model_copy(update={"demonstrations": str(folder)})
    return demonstrations(config.model_copy(update={"replay": shown}))


def kept(learner: Algorithm, config: AgentConfig, run: RunPaths) -> Iterator[tuple[int, Policy]]:
    """Load the run's newest checkpoint; yields its updates and policy. Of a kept policy the updates are 0."""
    if not run.replay.exists():
        policy = evaluation.trained(run.path).policy
        assert policy is not None
        yield 0, policy
        return
    learner.load_state(checkpoint.load(run.path, architecture(config)).tensors)
    yield learner.updates, learner.online


def trained(learner: Algorithm, config: AgentConfig, own: Source, updates: str) -> Iterator[tuple[int, Policy]]:
    """Train on the run's rows and its demonstrations as a training would that ends with the last mark; yields marks,
    and the policy then.
    """
    marks = sorted(int(text) for text in updates.split(","))
    batches = Batches(config)
    for done in counted(range(marks[-1]), "update"):
        learner.update(batches.draw(own, done), rate=learning_rate_factor(config.training.annealing, done, marks[-1]))
        if done + 1 in marks:
            yield done + 1, learner.online


def hide_from(learner: Algorithm, names: Sequence[str]) -> None:
    """Hide these privileged numbers from a new learner's actor: their weights are 0, and no gradient changes them."""
    told = privileged.NAMES[LISTED:-ACTION] if learner.online.sees == "privileged" else ()
    for name in names:
        if name not in told:
            sees = f"only sees {', '.join(told)}" if told else "sees none; set td3.network.sees=privileged"
            raise SystemExit(f"--hide {name}: the learner {sees}.")
    actor = learner.online.actor
    weight = actor.body.get_parameter("0.weight")
    reads = torch.ones_like(weight)
    reads[:, [told.index(name) for name in names]] = 0.0
    weight.data *= reads
    weight.register_hook(lambda gradient: gradient * reads)  # type: ignore[no-untyped-call]
    learner.target.actor.load_state_dict(actor.state_dict())


@torch.inference_mode()
def seen(policy: Policy, ring: Source) -> Seen:
    """Return some rows of a ring, the same at each call."""
    head, parts = policy.auxiliary if isinstance(policy, Networks) else None, []
    for number in range(BATCHES):
        batch = ring.sample(BATCH, np.random.default_rng(number))
        f = policy.features(batch.frames[:, : policy.stack.frames], batch.vector, batch.privileged)
        told = [] if head is None else [head(f)]
        parts.append((policy.actor(f, batch.vector), batch.privileged, *told))
    acted, known, *tell = (torch.cat(part).float().numpy() for part in zip(*parts, strict=True))
    return Seen(tell[0] if tell else None, known, acted)


def figures(rows: Seen) -> dict[str, float]:
    """Return the figures of the predictions, as described in the module's docstring."""
    at = {name: privileged.NAMES.index(name) for name in privileged.NAMES}
    known = {name: rows.known[:, place] for name, place in at.items()}
    found = {}
    if rows.told is not None:
        listed = len(privileged.NAMES) - rows.told.shape[1]  # they come first, and no head predicts them
        told = {name: rows.told[:, at[name] - listed] for name in TOLD}
        green, red = known["light_green"] > 0, known["light_red"] > 0
        looks_green = told["light_green"] / privileged.GREEN - told["light_red"] / privileged.RED
        found = {name: determination(told[name], known[name]) for name in TOLD}
        found["red_from_green"] = area(looks_green[green], looks_green[red])
    brakes = known["expert_pedal"] < BRAKES
    for_person, free = before_person(known)
    pedal = rows.acted[:, 1]
    braked = pedal[for_person] < np.quantile(pedal[free], FALSE_ALARMS) if free.any() else for_person[:0]
    return {
        **found,
        "person": area(-pedal[for_person], -pedal[free]),
        "person_braked": float(braked.mean()) if len(braked) else float("nan"),
        "pedal": determination(rows.acted[:, 1], known["expert_pedal"]),
        "pedal_where_expert_brakes": float(rows.acted[brakes, 1].mean()),
        "expert_there": float(known["expert_pedal"][brakes].mean()),
    }


def before_person(known: Mapping[str, NDArray[np.float32]]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks (n,): the moving car's expert brakes for a person only, and the road is free."""
    other = (known["lead_near"] > CAR_NEAR) | (known["light_red"] > 0) | (known["light_yellow"] > 0)
    other |= (known["sign_near"] > SIGN_NEAR) | (known["crossing_near"] > 0)
    undisturbed = (known["speed"] > MOVES) & ~other
    person = known["walker_near"] > 0
    return undisturbed & person & (known["expert_pedal"] < BRAKES), undisturbed & ~person & (known["expert_pedal"] > 0)


def determination(told: NDArray[np.float32], known: NDArray[np.float32]) -> float:
    """Return R² of (n,) numbers; NaN where all are the same."""
    spread = float(known.var())
    return float("nan") if spread == 0.0 else 1.0 - float(((told - known) ** 2).mean()) / spread


def area(positive: NDArray[np.float32], negative: NDArray[np.float32]) -> float:
    """Return the chance that one of the first (n,) is above one of the second (m,); NaN without any."""
    if not len(positive) or not len(negative):
        return float("nan")
    ordered = np.sort(negative)
    below, not_above = (np.searchsorted(ordered, positive, side).mean() for side in ("left", "right"))
    return float(below + not_above) / (2.0 * len(negative))


def table(found: list[dict[str, Any]]) -> Table:
    """Return the figures, a line each."""
    view = Table(title="R², area under the ROC curve, pedal")
    for column in found[0]:
        view.add_column(column.replace("_", " "), justify="right", min_width=5)
    for row in found:
        view.add_row(*(_shown(value) for value in row.values()))
    return view


def _shown(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    typer.run(main)
