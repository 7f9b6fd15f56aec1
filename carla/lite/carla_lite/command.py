"""What ``carla-lite`` does: one server until SIGTERM or Ctrl-C.

Owns the command line and the sentences for what a user can get wrong: exit code 2 for a fault, 65 for a map, 69 for a
port, 73 for a file that can't be written.
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
from carla_lite.roads.network import KNOWN, MAP_NAMES, MapError
from carla_lite.server import Server
from carla_lite.view import launch

# Whatever --host says: a process that can reach it can crash the server.
LOOPBACK = "127.0.0.1"
_BAD_FAULT, _BAD_MAP, _NO_PORT, _CANT_WRITE = 2, 65, 69, 73

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _first_port(text: str | int) -> int:
    first = str(text).partition("-")[0]
    if not first.isdecimal() or not 0 <= int(first) <= 65534:
        raise typer.BadParameter(f"{text!r} is no port, expected 1 to 65534, or 0")
    return int(first)


@app.command(epilog=f"Faults:\n\n{spec.help_text()}")
def main(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            parser=_first_port,
            envvar=["CARLA_PORT", "CARLA_PORTS"],
            help="RPC port, or the first of several (2000-2002); streams take the next one. 0 takes two that are free.",
        ),
    ] = 2000,
    map: Annotated[str, typer.Option(help=f"{KNOWN}, a map of --map-dir, or the path of an .xodr file.")] = MAP_NAMES[
        0
    ],
    map_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="LITE_MAP_DIR",
            help="Offer every .xodr file of this folder by its name, such as Town01, and as Town01_Opt.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what stands beside the road.")] = 0,
    tick_ms: Annotated[
        float,
        typer.Option(
            min=0.0, max=10_000.0, envvar="LITE_TICK_MS", help="A tick takes so long at least, as a card's would."
        ),
    ] = 0.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:KEY=VALUE,…",
            envvar="LITE_FAULTS",
            help="Go wrong as CARLA does (below): at start-up, after_s=SECONDS or after_ticks=N. Can be repeated; in "
            "LITE_FAULTS blanks stand between.",
        ),
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            envvar="LITE_CONTROL_PORT",
            help=f"Only on {LOOPBACK} take lines of text: fault KIND:KEY=VALUE,… or clear or status. 0 takes a free "
            "port. Off by default.",
        ),
    ] = None,
    view: Annotated[
        bool,
        typer.Option("--view", help=f"Serve a window on {LOOPBACK}: the spectator's camera, and the town from above."),
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write port, control port and process id there, as JSON, once it listens."),
    ] = None,
    end_with_input: Annotated[
        bool,
        typer.Option("--end-with-input", help="End when standard input closes: with the program that holds it open."),
    ] = False,
    view_port: Annotated[int, typer.Option(min=0, max=65535, help="Of the window; default: a free one.")] = 0,
) -> None:
    """Serve a CARLA world on the CPU to the unmodified carla client, version 0.9.16."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    injector = Injector(_faults(fault or []))
    try:
        maps = Maps(map, map_dir)
    except MapError as error:
        _fail(f"{error}", _BAD_MAP)
    with contextlib.ExitStack() as ends:
        # Before the others: a client that waits for the RPC port can then use this one.
        control = None if control_port is None else ends.enter_context(_control(control_port))
        window_socket = ends.enter_context(_window_socket(view_port)) if view else None
        injector.before_listening()
        try:
            server = ends.enter_context(Server(host, port, maps, seed, tick_ms / 1000))
        except OSError as error:
            _fail(_port_sentence(error, host, port), _NO_PORT)
        port = server.port
        if control is not None:
            ends.callback(ControlPort(control, server.selector, injector).close)
        if control is not None or fault:
            injector.attach(server)
        print(f"carla-lite: {maps.first.name} on {host}:{port} (streams {port + 1}), seed {seed}", flush=True)
        print(f"carla-lite: runs {compiled.running}", flush=True)
        if window_socket is not None:
            address = ends.enter_context(launch.window(window_socket, (host, port), seed))
            print(f"carla-lite: {ends.enter_context(launch.told(address, sys.stdout.isatty()))}", flush=True)
        if ready_file is not None:
            _tell(ready_file, port=port, control_port=None if control is None else control.getsockname()[1])
        if end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        server.serve()


def _tell(file: Path, **what: int | None) -> None:
    """Write the file whole: what waits for it never reads a half."""
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
