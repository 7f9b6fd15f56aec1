"""The command ``carla-lite``: one server until SIGTERM or Ctrl-C.

Owns the command line and the sentences for users' mistakes: exit code 2 for a fault, 65 for a map, 69 for a port, 73
for a file that can't be written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

# numpy would load this at its first use, while a world is made; its compiled parts then swallow a signal's SystemExit.
import numpy.random  # noqa: F401
import typer

from carla_lite import compiled
from carla_lite.faults import spec
from carla_lite.faults.control import ControlPort
from carla_lite.faults.fault import Fault, FaultError
from carla_lite.faults.injector import Injector
from carla_lite.maps import Maps
from carla_lite.protocol.channel import listen
from carla_lite.protocol.dialect import DIALECTS, LATEST, Dialect
from carla_lite.recording.folder import DEFAULT_FOLDER, DEFAULT_MIB, Folder
from carla_lite.roads.network import KNOWN, MAP_NAMES, MapError
from carla_lite.server import Server
from carla_lite.view import launch

# Whatever --host says: a program that can reach this port can crash the server.
LOOPBACK = "127.0.0.1"
_BAD_FAULT, _BAD_MAP, _NO_PORT, _CANT_WRITE = 2, 65, 69, 73

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
        str, typer.Option(help=f"Map at start: {KNOWN}, the name of a map in --map-dir, or the path of an .xodr file.")
    ] = MAP_NAMES[0],
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
            help="Be as strict as CARLA where carla-lite is more generous, so that a program that runs here also runs "
            "there. docs/carla-lite-model.md lists the differences.",
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
            help="Fail on purpose as CARLA does; the faults are listed below. A fault begins at start-up, or later "
            "with after_s=SECONDS or after_ticks=N. Can be repeated; LITE_FAULTS separates faults by blanks.",
        ),
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            envvar="LITE_CONTROL_PORT",
            help=f"Port on {LOOPBACK} for commands, one per line: fault KIND:KEY=VALUE,…; clear; status. 0 means a "
            "free port. Default: no control port.",
        ),
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help=f"Show the world in a browser, on {LOOPBACK} only: the spectator's camera and the town from above.",
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    injector = Injector(_faults(fault or []))
    try:
        maps = Maps(map, map_dir)
    except MapError as error:
        _fail(f"{error}", _BAD_MAP)
    with contextlib.ExitStack() as ends:
        # Before the others: a client that waits for the RPC port can then use this one, too.
        control = None if control_port is None else ends.enter_context(_control(control_port))
        folder = Folder(recordings, recordings_mib << 20)
        window_socket = ends.enter_context(_window_socket(view_port)) if view else None
        injector.before_listening()
        try:
            server = ends.enter_context(Server(host, port, maps, seed, tick_ms / 1000, strict, folder, client))
        except OSError as error:
            _fail(_port_sentence(error, host, port), _NO_PORT)
        port = server.port
        if control is not None:
            ends.callback(ControlPort(control, server.selector, injector).close)
        if control is not None or fault:
            injector.attach(server)
        mode = ", strict" if strict else ""
        print(f"carla-lite: {maps.first.name} on {host}:{port} (streams {port + 1}), seed {seed}{mode}", flush=True)
        print(f"carla-lite: runs {compiled.running}", flush=True)
        if window_socket is not None:
            address = ends.enter_context(launch.window(window_socket, (host, port), seed))
            print(f"carla-lite: {ends.enter_context(launch.announcement(address, sys.stdout.isatty()))}", flush=True)
        if ready_file is not None:
            _tell(ready_file, port=port, control_port=None if control is None else control.getsockname()[1])
        if end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        server.serve()


def _tell(file: Path, **what: int | None) -> None:
    """Write the file whole, so that a reader never sees half of it."""
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps({**what, "pid": os.getpid()}), encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        _fail(f"can't write {file} ({error.strerror}); choose another --ready-file", _CANT_WRITE)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _faults(texts: list[str]) -> list[Fault]:
    try:
        return [fault for text in texts for fault in spec.read(text)]
    except FaultError as error:
        _fail(f"{error}", _BAD_FAULT)


def _control(port: int) -> socket.socket:
    try:
        return listen(LOOPBACK, port)
    except OSError as error:
        _fail(f"can't listen on {LOOPBACK}:{port} ({error.strerror}); choose another with --control-port", _NO_PORT)


def _window_socket(port: int) -> socket.socket:
    try:
        return launch.bind(port)
    except OSError as error:
        _fail(f"can't listen on {LOOPBACK}:{port} ({error.strerror}); choose another with --view-port", _NO_PORT)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _fail(sentence: str, code: int) -> NoReturn:
    print(f"carla-lite: {sentence.rstrip('.')}.", file=sys.stderr)
    raise SystemExit(code)


def _port_sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} or {port + 1} on {host} is in use; end what listens there, or choose another with --port"
    return f"can't listen on {host}:{port} ({error.strerror or error}); give an address of this machine with --host"
