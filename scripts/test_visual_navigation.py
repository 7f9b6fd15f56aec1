"""The visual test: drives a hundred steps, shows them, and writes a video, a contact sheet and a verdict.

The pictures are shown in a window if there is a display, otherwise on the live page, whose address is printed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from carla_run.exits import Exit
from carla_run.program import program
from carla_td3.cli import options
from carla_td3.cli.commands import handling_errors, hard_exit
from carla_td3.cli.showing import PagePort, Show, ShowOption

LAUNCH = Path(__file__).with_name("launch.py")
VIEWING_MIB = 128.0
"""Estimated memory of another 480×480 camera on CARLA's GPU; not measured."""
PLAN_LIMIT_S = 60.0


class Camera(str, Enum):
    """The camera whose pictures are shown."""

    AUTO = "auto"
    OWN = "own"
    VIEWING = "viewing"


@handling_errors(hard_exit)
def main(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Steps to drive, of 0.1 s each.")] = 100,
    checkpoint: Annotated[Path | None, typer.Option(help="Run directory, or one of its checkpoints.")] = None,
    pretrained: options.PretrainedName = None,
    driver: Annotated[
        str | None,
        typer.Option(help="Driver: td3, pid, expert, random or stop. Default: td3 with --checkpoint, else pid."),
    ] = None,
    vehicles: options.Vehicles = None,
    walkers: options.Walkers = None,
    lights: options.Lights = None,
    weather: options.Weather = None,
    explain: options.Explain = False,
    show: ShowOption = Show.AUTO,
    port: PagePort = 0,
    camera: Annotated[
        Camera,
        typer.Option(
            help="Camera to show. own: the agent's; viewing: one of higher resolution; auto: viewing if it fits."
        ),
    ] = Camera.AUTO,
    memory_limit_mib: Annotated[
        float, typer.Option(min=1, max=1e9, help="Memory in MiB, of agent or simulator, above which the test fails.")
    ] = 8192,
    video: Annotated[
        Path,
        typer.Option(help="MP4 file for the video. The contact sheet (.png) and summary (.json) go into its folder."),
    ] = Path("runs/visual/visual.mp4"),
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
) -> Exit:
    """Show and record a driver on routes that it wasn't trained on.

    Exit codes: 0 the drive was healthy (each tick came with a new picture that isn't blank, and memory stayed below the
    limit); 1 it wasn't; 2 usage error, 65 bad configuration, 69 no simulator, 75 stopped on request.
    """
    from carla_td3.cli import evaluation, visual
    from carla_td3.evaluation.drivers import TD3_DRIVER

    world: dict[str, Any] = {"vehicles": vehicles, "walkers": walkers, "lights": lights, "weather": weather}
    trained = evaluation.trained(checkpoint, config, settings or (), pretrained=pretrained, map=map, seed=seed, **world)
    asked = visual.VisualTest(
        driver=driver or ("pid" if trained.policy is None else TD3_DRIVER),
        steps=steps,
        video=video,
        explain=explain,
        viewing=camera is Camera.VIEWING or (camera is Camera.AUTO and room_for_a_camera()),
        memory_limit_mib=memory_limit_mib,
    )
    return visual.show(trained, asked, show, port, "Visual test")


def room_for_a_camera() -> bool:
    """Return whether another camera fits: there is no GPU at all, or the launcher's plan leaves enough on each."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
        asked = subprocess.run(
            [sys.executable, str(LAUNCH), "plan", "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PLAN_LIMIT_S,
        )
        pools = json.loads(asked.stdout)["start"]["pools"]
        left = [pool["left_mib"] for name, pool in pools.items() if name.startswith("vram")]
        return bool(left) and min(left) >= VIEWING_MIB
    return False


if __name__ == "__main__":
    with program("agent", extra="agent"):
        typer.run(main)
