"""The command ``python -m carla_lite``: one server until SIGTERM or Ctrl-C.

Owns the command line and the sentences for what a user can get wrong: exit code 65 for a map, 69 for a port.
"""

from __future__ import annotations

import errno
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from carla_lite.maps import Maps
from carla_lite.roads.network import MAP_NAMES, MapError
from carla_lite.server import Server

_BAD_MAP, _NO_PORT = 65, 69

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65534, help="RPC port; streams take the next one.")] = 2000,
    map: Annotated[str, typer.Option(help=f"{', '.join(MAP_NAMES)}, or the path of an .xodr file.")] = MAP_NAMES[0],
    seed: Annotated[int, typer.Option(min=0, help="Of what stands beside the road.")] = 0,
) -> None:
    """Serve a CARLA world on the CPU to the unmodified carla client, version 0.9.16."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        maps = Maps(map)
    except MapError as error:
        _fail(f"{error}", _BAD_MAP)
    try:
        server = Server(host, port, maps, seed)
    except OSError as error:
        _fail(_port_sentence(error, host, port), _NO_PORT)
    with server:
        print(f"carla-lite: {maps.first.name} on {host}:{port} (streams {port + 1}), seed {seed}", flush=True)
        server.serve()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _fail(sentence: str, code: int) -> NoReturn:
    print(f"carla-lite: {sentence.rstrip('.')}.", file=sys.stderr)
    raise SystemExit(code)


def _port_sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} or {port + 1} on {host} is in use; end what listens there, or choose another with --port"
    return f"can't listen on {host}:{port} ({error.strerror or error}); give an address of this machine with --host"


if __name__ == "__main__":
    app(prog_name="python -m carla_lite")
