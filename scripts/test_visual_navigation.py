"""The visual test: drive a hundred steps, watch, and leave a video, a contact sheet and a verdict.

The picture comes in a window where there is a display, else by the live page, whose address is printed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from carla_run.exits import Exit
from carla_run.program import program
from carla_td3.cli import options
from carla_td3.cli.commands import console, handling_errors, hard_exit
from carla_td3.cli.showing import PagePort, Show, ShowOption, shown

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
    steps: Annotated[int, typer.Option(min=1, help="Steps to drive, a tenth of a second each.")] = 100,
    checkpoint: Annotated[Path | None, typer.Option(help="A run directory or one of its checkpoints.")] = None,
    pretrained: options.PretrainedName = None,
    driver: Annotated[
        str | None, typer.Option(help="td3, pid, expert, random or stop. Default: td3 with --checkpoint, else pid.")
    ] = None,
    vehicles: Annotated[int | None, typer.Option(min=0, max=200, help="Other cars.")] = None,
    walkers: Annotated[int | None, typer.Option(min=0, max=400, help="People on foot.")] = None,
    lights: Annotated[bool | None, typer.Option("--lights/--green", help="Whether traffic lights change.")] = None,
    weather: Annotated[str | None, typer.Option(help="A preset of CARLA's, as HardRainSunset.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what the network goes by, as heat maps.")] = False,
    show: ShowOption = Show.AUTO,
    port: PagePort = 0,
    camera: Annotated[
        Camera,
        typer.Option(help="own: the agent's; viewing: a sharper one beside it; auto: that, if `plan` has room for it."),
    ] = Camera.AUTO,
    memory_limit_mib: Annotated[
        float, typer.Option(min=1, max=1e9, help="Of agent and of simulator: more is unhealthy.")
    ] = 8192,
    video: Annotated[
        Path, typer.Option(help="Where the video goes, .mp4; the sheet (.png) and the summary (.json) lie beside it.")
    ] = Path("runs/visual/visual.mp4"),
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
) -> Exit:
    """Show and record a driver on routes that it wasn't trained on.

    Exit codes: 0 the drive was healthy (every tick came, with its own picture, which shows something; memory under its
    limit); 1 it wasn't; 2 usage, 65 bad configuration, 69 no simulator, 75 stopped on request, with what was driven.
    """
    from carla_td3.cli import evaluation, visual
    from carla_td3.evaluation import overlay
    from carla_td3.evaluation.drivers import TD3_DRIVER

    world = {"vehicles": vehicles, "walkers": walkers, "lights": lights, "weather": weather}
    trained = evaluation.trained(checkpoint, config, settings or (), pretrained=pretrained, map=map, seed=seed, **world)
    asked = visual.VisualTest(
        driver=driver or ("pid" if trained.policy is None else TD3_DRIVER),
        steps=steps,
        video=video,
        explain=explain,
        viewing=camera is Camera.VIEWING or (camera is Camera.AUTO and room_for_a_camera()),
        memory_limit_mib=memory_limit_mib,
    )
    visual.prepare(asked, trained)
    with shown(show, port, video.parent, "Visual test", overlay.size_of(explain)) as window:
        return Exit.FINISHED if visual.run(trained, asked, window, console()) else Exit.CRASH


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
