"""The commands around a trained driver: ``drive`` shows one, ``export`` makes a file of one that others can use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from carla_run.exits import Exit
from carla_td3.cli import options
from carla_td3.cli.commands import error_sentences, handling_errors, hard_exit
from carla_td3.cli.own_simulator import carla_lite
from carla_td3.cli.showing import PagePort, Show, ShowOption
from carla_td3.config import host_and_port

UNSEEN_TOWN = "Lite:seed=800,size=400"
"""Never used to train or to choose a driver: the town of the benchmarks' results."""
LOOPBACK = "127.0.0.1"
MEMORY_LIMIT_MIB = 8192.0
"""Memory limit of the agent, and of the simulator. A drive that exceeds it is unhealthy."""


@handling_errors(hard_exit)
def drive(
    *,
    pretrained: options.PretrainedName = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Run directory or one of its checkpoints, instead of --pretrained.")
    ] = None,
    driver: Annotated[
        str | None, typer.Option(help="td3, pid, expert, random or stop. Default: td3, the trained driver.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to drive, a tenth of a second each.")] = 600,
    simulator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of a running simulator. Default: CARLA_HOST and CARLA_PORT if one is set. Otherwise a "
            "carla-lite is started for the drive.",
        ),
    ] = None,
    map: Annotated[
        str | None,
        typer.Option(help=f"Map to drive on. Default: the loaded one; in a started carla-lite {UNSEEN_TOWN}."),
    ] = None,
    vehicles: options.Vehicles = None,
    walkers: options.Walkers = None,
    lights: options.Lights = None,
    weather: options.Weather = None,
    show: ShowOption = Show.AUTO,
    port: PagePort = 0,
    explain: options.Explain = False,
    video: Annotated[
        Path,
        typer.Option(help="MP4 file for a film of the drive; a contact sheet and a summary are written beside it."),
    ] = Path("runs/drive/drive.mp4"),
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
) -> Exit:
    """Watch a trained driver in traffic, in a window or in a browser, and save a video of the drive.

    Without options, the command starts a carla-lite, and the driver of this package drives in it.

    Exit codes: 0 the drive was healthy (ticks, pictures and memory as expected), 1 it was not, 2 usage error, 65 bad
    configuration or policy, 69 no simulator, 75 stopped on request.
    """
    from carla_td3.cli import evaluation, visual
    from carla_td3.evaluation.drivers import TD3_DRIVER
    from carla_td3.pretrained import DEFAULT

    at = _address(simulator)
    own = at is None and not any(os.environ.get(name) for name in ("CARLA_HOST", "CARLA_PORT", "CARLA_PORTS"))
    if pretrained is None and checkpoint is None and driver in (None, TD3_DRIVER):
        pretrained = DEFAULT
    with contextlib.ExitStack() as started:
        if own:
            at = LOOPBACK, started.enter_context(carla_lite(map or UNSEEN_TOWN))
        where = [] if at is None else [f"simulator.host={at[0]}", f"simulator.port={at[1]}"]
        trained = evaluation.trained(
            checkpoint,
            config,
            [*(settings or ()), *where],
            pretrained=pretrained,
            map=None if own else map,
            seed=seed,
            vehicles=vehicles,
            walkers=walkers,
            lights=lights,
            weather=weather,
        )
        asked = visual.VisualTest(
            driver=driver or TD3_DRIVER,
            steps=steps,
            video=video,
            explain=explain,
            viewing=own,  # one more camera costs a card's memory, and carla-lite has none
            memory_limit_mib=MEMORY_LIMIT_MIB,
        )
        return visual.show(trained, asked, show, port, "carla-td3 drive")


@handling_errors(error_sentences)
def export(
    *,
    checkpoint: Annotated[
        Path,
        typer.Option(help="Run directory, whose latest checkpoint is taken, or one of its folders checkpoints/step-…."),
    ],
    out: Annotated[Path, typer.Option(help="File to write, NAME.safetensors; NAME becomes the driver's name.")],
    trained_on: Annotated[
        str,
        typer.Option("--trained-on", help="One sentence for the model card: where it was trained, and for how long."),
    ],
    licence: Annotated[str, typer.Option(help="Licence of the weights, as an SPDX identifier.")] = "MIT",
) -> None:
    """Write a trained driver as one file that `drive`, `evaluate` and gymnasium programs can use.

    The file holds the weights, the task with its normalisation, and a model card with version, licence, SHA-256.

    Exit codes: 0 written, 2 usage error, 65 no such checkpoint, or the file can't be written.
    """
    import importlib.metadata

    from carla_td3 import pretrained
    from carla_td3.cli import evaluation
    from carla_td3.exits import AgentError, sentence

    if out.suffix != pretrained.SUFFIX:
        raise AgentError(f"--out {out}: expected a name that ends with {pretrained.SUFFIX}.", Exit.USAGE)
    for option, text in (("--trained-on", trained_on), ("--licence", licence)):
        if not text.strip():
            raise AgentError(f"{option} is empty, and the model card needs it.", Exit.USAGE)
    found = evaluation.trained(checkpoint, remedy="put it back")
    assert found.policy is not None
    card = pretrained.Card(out.stem, importlib.metadata.version("carla-td3-lowmem"), licence, trained_on)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        card = pretrained.write(out, found.policy, found.config, card)
    except OSError as error:
        raise AgentError(sentence(error), Exit.BAD_CONFIG) from None
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB, SHA-256 of the weights {card.sha256}")


def _address(simulator: str | None) -> tuple[str, int] | None:
    """Return host and port of HOST:PORT.

    Raises:
        AgentError: it is neither.
    """
    from carla_td3.exits import AgentError

    at = None if simulator is None else host_and_port(simulator)
    if simulator is not None and at is None:
        raise AgentError(f"--simulator {simulator}: expected HOST:PORT, such as localhost:2000.", Exit.USAGE)
    return at
