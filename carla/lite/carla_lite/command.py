"""The command line of ``carla-lite``.

Owns the options and their help. What is done with them, and what it imports, is ``serving``'s.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from carla_lite.faults import spec
from carla_lite.options import StartOptions, WorldOptions
from carla_lite.protocol.dialect import DIALECTS, LATEST, Dialect
from carla_lite.recording.folder import DEFAULT_FOLDER, DEFAULT_MIB, Folder
from carla_lite.towns.generator import KNOWN, NAMES

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _first_port(text: str | int) -> int:
    first = str(text).partition("-")[0]
    if str(text) != "0" and not (first.isdecimal() and 1 <= int(first) <= 65534):
        raise typer.BadParameter(f"{text!r} is no port, expected 1 to 65534, or 0 for free ports")
    return int(first)


def _dialect(text: str) -> Dialect:
    if text not in DIALECTS:
        raise typer.BadParameter(f"{text!r} is no version that is spoken, expected {' or '.join(DIALECTS)}")
    return DIALECTS[text]


@app.command(epilog=f"Faults:\n\n{spec.help_text()}")
def main(
    host: Annotated[
        str,
        typer.Option(help="Address to listen on: 127.0.0.1 for this machine only, 0.0.0.0 for all of its addresses."),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            parser=_first_port,
            envvar=["CARLA_PORT", "CARLA_PORTS"],
            help="Port for clients; sensor data uses the next port. A range such as 2000-2002 means its first port; 0 "
            "means two free ports.",
        ),
    ] = 2000,
    map: Annotated[
        str, typer.Option(help=f"Map at start: {KNOWN}, the name of a map of --map-dir, or the path of an .xodr file.")
    ] = NAMES[0],
    map_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="LITE_MAP_DIR",
            help="Folder of .xodr files that clients can load by name, such as Town01 or Town01_Opt for Town01.xodr.",
        ),
    ] = None,
    recordings: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            envvar="LITE_RECORDINGS",
            help="Folder for the recordings that clients make and replay by name. The first recording creates it.",
        ),
    ] = DEFAULT_FOLDER,
    recordings_mib: Annotated[
        int, typer.Option(min=1, envvar="LITE_RECORDINGS_MIB", help="Largest size of all recordings together, in MiB.")
    ] = DEFAULT_MIB,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the houses and trees beside the roads.")] = 0,
    tick_ms: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=10_000.0,
            envvar="LITE_TICK_MS",
            help="Shortest duration of a tick, in milliseconds, to imitate the speed of a simulator on a GPU.",
        ),
    ] = 0.0,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            envvar="LITE_STRICT",
            help="Refuse what CARLA refuses, also where carla-lite normally accepts it. Then a program that runs here "
            "also runs there. docs/carla-lite-model.md lists the differences.",
        ),
    ] = False,
    client: Annotated[
        Dialect,
        typer.Option(
            metavar="VERSION",
            parser=_dialect,
            envvar="LITE_CLIENT",
            help=f"Version of the clients to serve: {' or '.join(DIALECTS)}. A client doesn't send its version.",
        ),
    ] = LATEST.version,  # type: ignore[assignment]  # read by the parser
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:KEY=VALUE,…",
            envvar="LITE_FAULTS",
            help="Fail on purpose as CARLA does; `carla-lite --help` lists the kinds. A fault begins at start-up, or "
            "later with after_s=SECONDS or after_ticks=N. Can be repeated; in LITE_FAULTS, separate by spaces.",
        ),
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            envvar="LITE_CONTROL_PORT",
            help="Port on 127.0.0.1 that takes lines of text: fault KIND:KEY=VALUE,… or clear or status. 0 takes a "
            "free port. Default: no control port.",
        ),
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Show the world in a browser, on 127.0.0.1 only: the spectator's camera and the town from above.",
        ),
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write once the server listens: its port, control port and process id, as JSON.",
        ),
    ] = None,
    end_with_input: Annotated[
        bool,
        typer.Option(
            "--end-with-input",
            help="End the server when its standard input closes, so that it ends with the program that started it.",
        ),
    ] = False,
    view_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page that --view serves. 0 means a free port.")
    ] = 0,
) -> None:
    """Serve a CARLA world on the CPU to the unmodified carla client, version 0.9.16 or 0.9.15.

    `carla-lite coverage` prints which calls, sensors, blueprints and attributes of CARLA are supported.
    """
    try:
        from carla_lite.serving import serve
    except KeyboardInterrupt:  # before it takes signals itself
        sys.exit(130)
    world = WorldOptions(seed, tick_ms / 1000, strict, Folder(recordings, recordings_mib << 20), client)
    serve(
        StartOptions(
            *(host, port, map, map_dir, world, fault or []),
            *(control_port, view, view_port, ready_file, end_with_input),
        )
    )
