"""The visual test: drive a hundred steps and leave a video of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent.cli import options
from agent.cli.commands import leaving


def main(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Steps to record, a tenth of a second each.")] = 100,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A run directory or one of its checkpoints. Without it the PID driver drives.")
    ] = None,
    video: Annotated[Path, typer.Option(help="Where the video goes, .mp4.")] = Path("runs/visual/visual.mp4"),
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
    debug: options.Debug = False,
) -> None:
    """Record a driver on routes it was not trained on."""
    with leaving(debug):
        from agent.cli import evaluation
        from agent.evaluation.drivers import TD3_DRIVER

        trained = evaluation.trained(checkpoint, config, settings, {"simulator.map": map, "seed": seed})
        name = "pid" if trained.policy is None else TD3_DRIVER
        made = evaluation.film(trained, name, steps, video)
        Console().print(f"{name}: {made.seconds:.1f} s, {made.metres:.0f} m → {made.path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
