"""The visual test: drives a hundred steps, shows them, and writes a video, a contact sheet and a verdict.

The pictures are shown in a window if there is a display, otherwise on the live page, whose address is printed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.program import program
from carla_td3.cli import options
from carla_td3.cli.commands import console, leaving, within

if TYPE_CHECKING:
    from carla_td3.evaluation.window import Window

LAUNCH = Path(__file__).with_name("launch.py")
VIEWING_MIB = 128.0
"""VRAM that one more camera of 480×480 takes in CARLA: an estimate, not measured."""
PLAN_LIMIT_S = 60.0


class Show(str, Enum):
    """Where the pictures are shown."""

    AUTO = "auto"
    WINDOW = "window"
    PAGE = "page"
    NOTHING = "nothing"


class Camera(str, Enum):
    """The camera whose pictures are shown."""

    AUTO = "auto"
    OWN = "own"
    VIEWING = "viewing"


@within(leaving)
def main(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Steps to drive, of 0.1 s each.")] = 100,
    checkpoint: Annotated[Path | None, typer.Option(help="Run directory, or one of its checkpoints.")] = None,
    driver: Annotated[
        str | None,
        typer.Option(help="Driver: td3, pid, expert, random or stop. Default: td3 with --checkpoint, else pid."),
    ] = None,
    vehicles: Annotated[int | None, typer.Option(min=0, max=200, help="Number of other vehicles.")] = None,
    walkers: Annotated[int | None, typer.Option(min=0, max=400, help="Number of pedestrians.")] = None,
    lights: Annotated[
        bool | None, typer.Option("--lights/--green", help="Let the traffic lights change, or keep them green.")
    ] = None,
    weather: Annotated[str | None, typer.Option(help="Weather preset of CARLA, such as HardRainSunset.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show as heat maps which parts of the picture the network uses.")
    ] = False,
    show: Annotated[
        Show, typer.Option(help="Where to show the pictures. auto: in a window if there is a display, else on a page.")
    ] = Show.AUTO,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the live page on 127.0.0.1. 0 takes a free port.")
    ] = 0,
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
    from carla_td3.evaluation import overlay
    from carla_td3.evaluation.drivers import TD3_DRIVER

    world = {"vehicles": vehicles, "walkers": walkers, "lights": lights, "weather": weather}
    trained = evaluation.trained(checkpoint, config, settings or (), map=map, seed=seed, **world)
    asked = visual.Asked(
        driver=driver or ("pid" if trained.policy is None else TD3_DRIVER),
        steps=steps,
        video=video,
        explain=explain,
        viewing=camera is Camera.VIEWING or (camera is Camera.AUTO and room_for_a_camera()),
        memory_limit_mib=memory_limit_mib,
    )
    visual.prepare(asked, trained)
    with shown(show, port, video.parent, overlay.size_of(explain)) as window:
        return Exit.FINISHED if visual.run(trained, asked, window, console()) else Exit.CRASH


@contextlib.contextmanager
def shown(show: Show, port: int, folder: Path, size: tuple[int, int]) -> Iterator[Window | None]:
    """Open a window, or serve the live page, while the block runs. Print why ``auto`` can't open a window.

    Raises:
        NoWindowError, Exit: the window or page that was asked for can't be had.
    """
    from carla_td3.evaluation.window import NoWindowError, Window

    if show in (Show.AUTO, Show.WINDOW):
        try:
            window = Window("Visual test", size)
        except NoWindowError as refused:
            if show is Show.WINDOW:
                raise
            say(str(refused))
        else:
            with contextlib.closing(window):
                yield window
            return
    with contextlib.nullcontext() if show is Show.NOTHING else page(folder, port, needed=show is Show.PAGE):
        yield None


@contextlib.contextmanager
def page(folder: Path, port: int, *, needed: bool) -> Iterator[None]:
    """Serve the launcher's live page of a folder while the block runs. Print why it can't be served.

    Raises:
        Exit: it can't be served, and it is ``needed``.
    """
    from carla_launcher.plugins.page import live_page

    run = RunPaths(folder)
    run.logs.mkdir(exist_ok=True)
    with live_page.beside(run, port, say, to_terminal=sys.stderr.isatty()) as served:
        if served is None and needed:
            raise typer.Exit(Exit.BAD_CONFIG)
        yield


def say(sentence: str) -> None:
    """Print a message, which is no result."""
    print(sentence, file=sys.stderr, flush=True)


def room_for_a_camera() -> bool:
    """Return whether one more camera fits: there is no GPU, or the launcher's plan leaves enough memory on each."""
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
