"""The command line of ``carla-lite``.

Owns the options and their help. What is done with them, and what it imports, is ``serving``'s. Made with click, not
typer, which imports pydantic: a fifth of the start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from carla_lite.faults import spec
from carla_lite.options import StartOptions, WorldOptions
from carla_lite.protocol.dialect import DIALECTS, LATEST, Dialect
from carla_lite.recording.folder import DEFAULT_FOLDER, DEFAULT_MIB, Folder
from carla_lite.towns.generator import KNOWN, NAMES


def _first_port(_context: click.Context, _option: click.Parameter, text: str) -> int:
    first, dash, last = text.partition("-")
    if text != "0" and not (first.isdecimal() and 1 <= int(first) <= 65534):
        raise click.BadParameter(f"{text!r} is no port, expected 1 to 65534, or 0 for free ports")
    if dash and last != str(int(first) + 2):
        raise click.BadParameter(f"{text!r} is no range of three ports, expected {first}-{int(first) + 2}")
    return int(first)


def _dialect(_context: click.Context, _option: click.Parameter, text: str) -> Dialect:
    if text not in DIALECTS:
        raise click.BadParameter(f"{text!r} is no version that is spoken, expected {' or '.join(DIALECTS)}")
    return DIALECTS[text]


_PORT = click.IntRange(0, 65535)
_option = partial(click.option, show_default=True, show_envvar=True)


@click.command(epilog=f"Faults:\n\n{spec.help_text()}", context_settings={"max_content_width": 100})
@_option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on: 127.0.0.1 for this machine only, 0.0.0.0 for all of its addresses.",
)
@_option(
    "--port",
    default="2000",
    metavar="PORT",
    callback=_first_port,
    envvar=["CARLA_PORT", "CARLA_PORTS"],
    help="Port for clients; sensor data uses the next port. A range such as 2000-2002 means its first port; 0 means "
    "two free ports.",
)
@_option(
    "--map",
    default=NAMES[0],
    help=f"Map at start: {KNOWN}, the name of a map of --map-dir, or the path of an .xodr file.",
)
@_option(
    "--map-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="LITE_MAP_DIR",
    help="Folder of .xodr files that clients can load by name, such as Town01 or Town01_Opt for Town01.xodr.",
)
@_option(
    "--recordings",
    default=DEFAULT_FOLDER,
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="LITE_RECORDINGS",
    help="Folder for the recordings that clients make and replay by name. The first recording creates it.",
)
@_option(
    "--recordings-mib",
    default=DEFAULT_MIB,
    type=click.IntRange(min=1),
    metavar="MIB",
    envvar="LITE_RECORDINGS_MIB",
    help="Largest size of all recordings together, in MiB.",
)
@_option("--seed", default=0, type=click.IntRange(min=0), help="Seed of the houses and trees beside the roads.")
@_option(
    "--tick-ms",
    default=0.0,
    type=click.FloatRange(0.0, 10_000.0),
    envvar="LITE_TICK_MS",
    help="Shortest duration of a tick, in milliseconds, to imitate the speed of a simulator on a GPU.",
)
@_option(
    "--strict",
    is_flag=True,
    envvar="LITE_STRICT",
    help="Refuse what CARLA refuses, also where carla-lite normally accepts it. Then a program that runs here also "
    "runs there. docs/carla-lite-model.md lists the differences.",
)
@_option(
    "--client",
    default=LATEST.version,
    metavar="VERSION",
    callback=_dialect,
    envvar="LITE_CLIENT",
    help=f"Version of the clients to serve: {' or '.join(DIALECTS)}. A client doesn't send its version.",
)
@_option(
    "--fault",
    multiple=True,
    metavar="KIND:KEY=VALUE,…",
    envvar="LITE_FAULTS",
    help="Fail on purpose as CARLA does; `carla-lite --help` lists the kinds. A fault begins at start-up, or later "
    "with after_s=SECONDS or after_ticks=N. Can be repeated; in LITE_FAULTS, separate by spaces.",
)
@_option(
    "--control-port",
    type=_PORT,
    envvar="LITE_CONTROL_PORT",
    help="Port on 127.0.0.1 that takes lines of text: fault KIND:KEY=VALUE,… or clear or status. 0 takes a free port. "
    "Default: no control port.",
)
@_option(
    "--view",
    is_flag=True,
    help="Show the world in a browser, on 127.0.0.1 only: the spectator's camera and the town from above.",
)
@_option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File to write once the server listens: its port, control port and process id, as JSON.",
)
@_option(
    "--end-with-input",
    is_flag=True,
    help="End the server when its standard input closes, so that it ends with the program that started it.",
)
@_option("--view-port", default=0, type=_PORT, help="Port of the page that --view serves. 0 means a free port.")
def main(
    recordings: Path,
    recordings_mib: int,
    seed: int,
    tick_ms: float,
    strict: bool,
    client: Dialect,
    fault: Sequence[str],
    **start: Any,
) -> None:
    """Serve a CARLA world on the CPU to the unmodified carla client, version 0.9.16 or 0.9.15.

    `carla-lite coverage` prints which calls, sensors, blueprints and attributes of CARLA are supported.
    """
    try:
        from carla_lite.serving import serve
    except KeyboardInterrupt:  # before it takes signals itself
        sys.exit(130)
    world = WorldOptions(seed, tick_ms / 1000, strict, Folder(recordings, recordings_mib << 20), client)
    serve(StartOptions(world=world, faults=fault, **start))
