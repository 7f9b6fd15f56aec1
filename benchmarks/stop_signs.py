"""Does a driver stand at stop signs, how slow was it if not, and did it brake? From rows of ``carla-td3 record``.

The town's routes hold few signs; drives that begin before one hold many::

    python -m carla_lite --map Lite:seed=914,size=400 &
    carla-td3 record --config traffic --checkpoint benchmarks/results/learning/td3/seed-0 --out runs/signs/0 \\
        --steps 12000 --set environment.route.before_signs=1 --set training.towns.every_episodes=5 \\
        --set 'training.towns.maps=["Lite:seed=914,size=400","Lite:seed=916,size=400"]' \\
        --set environment.traffic.vehicles=0 --set environment.traffic.walkers=0
    python benchmarks/stop_signs.py runs/signs/0

The environment's privileged numbers hold a sign until the car has stood in its box, or has left it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from carla_run.paths import RunPaths
from carla_td3.env import privileged
from carla_td3.env.observation import SPEED_SCALE_MPS
from carla_td3.env.stop_signs import STANDING_MPS
from carla_td3.td3.replay.layout import ReplayError
from carla_td3.td3.replay.ring import Ring

AT_SIGN, AT_LINE = 0.85, 0.95
"""``sign_near`` from which the car is at a sign, and at its line: its front is 9 m or 3 m before it, or nearer."""


@dataclass(frozen=True)
class Passage:
    """A car's way past a stop sign."""

    stood: bool
    slowest_mps: float


def passages(near: NDArray[np.float32], speed_mps: NDArray[np.float32], step: NDArray[Any]) -> Iterator[Passage]:
    """Yield the passages that began and ended within their episodes.

    Args:
        near: (n,) nearness of the next sign that the car must stop at, as the privileged number ``sign_near``.
        speed_mps: (n,) speeds.
        step: (n,) numbers of the steps in their episodes; a new episode begins where they don't count on.
    """
    at = near > AT_SIGN
    first = None
    for row, after in pairwise(range(len(near))):
        if step[after] != step[row] + 1:
            first = None
        elif at[after] and not at[row]:
            first = after
        elif first is not None and not at[after]:
            slowest = float(speed_mps[first : after + 1].min())
            yield Passage(bool(speed_mps[after] < STANDING_MPS), slowest)
            first = None


def pedals(
    near: NDArray[np.float32],
    speed_mps: NDArray[np.float32],
    step: NDArray[Any],
    arrived_by: NDArray[np.float32],
    advised: NDArray[np.float32],
) -> tuple[float, float]:
    """Return the mean pedal of the driver and of the expert where the car moves at a line; NaN where it never does.

    Args:
        near, speed_mps, step: as for ``passages``.
        arrived_by: (n,) the driver's pedal of the step before.
        advised: (n,) the expert's pedal.
    """
    moves = (near > AT_LINE) & (speed_mps >= STANDING_MPS)
    chosen = np.flatnonzero(moves[:-1] & (step[1:] == step[:-1] + 1))
    if not len(chosen):
        return float("nan"), float("nan")
    return float(arrived_by[chosen + 1].mean()), float(advised[chosen].mean())


def line(folder: Path) -> Sequence[str]:
    """Return a recording's line in the table."""
    try:
        ring = Ring.open(RunPaths(folder).replay, writable=False)
        ring.layout.require_privileged(ring.directory, privileged.SIZE)
    except ReplayError as error:
        raise SystemExit(str(error)) from None
    rows = ring.rows[: int(ring.published[0])]
    told = ("sign_near", "speed", "expert_pedal")
    near, speed, advised = (rows["privileged"][:, privileged.NAMES.index(name)] for name in told)
    car = near, speed * np.float32(SPEED_SCALE_MPS), rows["episode_step"].astype(np.int64)
    found = [*passages(*car)]
    rolled = sorted(each.slowest_mps for each in found if not each.stood)
    slowest = f"{np.median(rolled):.1f} ({rolled[0]:.1f} to {rolled[-1]:.1f})" if rolled else ""
    pedal = "{:.2f}, {:.2f}".format(*pedals(*car, rows["action"][:, 1], advised))
    return str(folder), str(len(found)), str(len(rolled)), slowest, pedal


def main(folders: Annotated[list[Path], typer.Argument(help="Folders that `carla-td3 record` wrote.")]) -> None:
    """Count the stop signs that were passed, and those at which the car didn't stand."""
    view = Table(title="Stop signs")
    seen = "recording", "passed", "without standing"
    for column in (*seen, "slowest before these, m/s", "pedal in the last 3 m, expert's"):
        view.add_column(column)
    for folder in folders:
        view.add_row(*line(folder))
    Console().print(view)


if __name__ == "__main__":
    typer.run(main)
