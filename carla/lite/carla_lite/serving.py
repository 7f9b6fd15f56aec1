"""Runs ``carla-lite`` once its options are read: one server until SIGTERM or Ctrl-C.

Owns the order of the start, and the sentences for what a user can get wrong: exit code 2 for a fault, 65 for a map, 69
for a port, 73 for a file that can't be written.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

# numpy would load this at its first use, while a world is made; its compiled parts then swallow a signal's SystemExit.
import numpy.random  # noqa: F401

from carla_lite import compiled
from carla_lite.faults import spec
from carla_lite.faults.control import ControlPort
from carla_lite.faults.fault import Fault, FaultError
from carla_lite.faults.injector import Injector
from carla_lite.maps import Maps
from carla_lite.options import StartOptions
from carla_lite.protocol.channel import listen
from carla_lite.roads.opendrive import MapError
from carla_lite.server import Server

# Whatever --host says: a process that can reach it can crash the server.
LOOPBACK = "127.0.0.1"
_BAD_FAULT, _BAD_MAP, _NO_PORT, _CANT_WRITE = 2, 65, 69, 73


def serve(asked: StartOptions) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    injector = Injector(_faults(asked.faults))
    try:
        maps = Maps(asked.map, asked.map_dir)
    except MapError as error:
        _fail(f"{error}", _BAD_MAP)
    with contextlib.ExitStack() as ends:
        # Before the others: a client that waits for the RPC port can then use this one.
        control = None if asked.control_port is None else ends.enter_context(_control(asked.control_port))
        window_socket = ends.enter_context(_window_socket(asked.view_port)) if asked.view else None
        injector.before_listening()
        try:
            server = ends.enter_context(Server(asked.host, asked.port, maps, asked.world))
        except OSError as error:
            _fail(_port_sentence(error, asked.host, asked.port), _NO_PORT)
        if control is not None:
            ends.callback(ControlPort(control, server.selector, injector).close)
        if control is not None or asked.faults:
            injector.attach(server)
        _say_so(asked, maps.first.name, server.port)
        if window_socket is not None:
            from carla_lite.view import launch

            address = ends.enter_context(launch.window(window_socket, (asked.host, server.port), asked.world.seed))
            print(f"carla-lite: {ends.enter_context(launch.announcement(address, sys.stdout.isatty()))}", flush=True)
        if asked.ready_file is not None:
            at = None if control is None else control.getsockname()[1]
            _tell(asked.ready_file, port=server.port, control_port=at)
        if asked.end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        gc.enable()
        server.serve()


def _say_so(asked: StartOptions, name: str, port: int) -> None:
    world = asked.world
    mode = ", strict" if world.strict else ""
    print(f"carla-lite: {name} on {asked.host}:{port} (streams {port + 1}), seed {world.seed}{mode}", flush=True)
    print(f"carla-lite: runs {compiled.running}", flush=True)


def _tell(file: Path, **what: int | None) -> None:
    """Write the file whole: what waits for it never reads a half."""
    beside = Path(f"{file}.{os.getpid()}")
    try:
        beside.write_text(json.dumps({**what, "pid": os.getpid()}), encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        _fail(f"can't write {file} ({error.strerror}); choose another --ready-file", _CANT_WRITE)


def _end_with_input() -> None:
    # Python's is None if it was closed at the start: number 0 is then one of the server's sockets.
    with contextlib.suppress(OSError):  # a terminal that has gone
        while sys.stdin is not None and os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _faults(texts: Sequence[str]) -> list[Fault]:
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
    from carla_lite.view import launch

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
