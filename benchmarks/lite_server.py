"""A carla-lite server of a benchmark's own, on a free port; and children that end with their benchmark."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import carla

from carla_launcher.ports import free_port_pair

START_S, STOP_S = 60.0, 10.0


@contextlib.contextmanager
def lite_server(map: str, seed: int = 0) -> Iterator[int]:
    """Run ``python -m carla_lite`` while the block lasts; yields its RPC port."""
    with lite_process(map, seed) as (port, _):
        yield port


@contextlib.contextmanager
def lite_process(map: str, seed: int = 0, tick_ms: float = 0.0, compiled: bool = True) -> Iterator[tuple[int, int]]:
    """As :func:`lite_server`, whose ticks take so long at least; yields port and process id.

    Not ``compiled``: its .py files run in any case.
    """
    port = free_port_pair(random.Random())
    if port is None:
        raise SystemExit("No two neighbouring ports are free on 127.0.0.1: end what listens there.")
    command = [*mortal("carla_lite"), "--host", "127.0.0.1", "--port", str(port), f"--tick-ms={tick_ms}"]
    # Of a session of its own: Ctrl-C is for the benchmark, which ends it last.
    words = [*command, "--map", map, "--seed", str(seed)]
    environment = os.environ if compiled else {**os.environ, "LITE_COMPILED_DIR": ""}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True, env=environment)
    try:
        _wait_for(port, process)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGCONT)  # where the block had paused it
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:  # a machine that is busy; it holds nothing that could be lost
            process.kill()
            process.wait()


def mortal(module: str) -> list[str]:
    """Return a command as ``python -m MODULE``, whose process ends with this one, whatever ends this one."""
    ends = f"from carla_td3.collector.parent import die_with; die_with({os.getpid()})"
    run = f"import sys; sys.argv[0] = {module!r}\nfrom {module}.__main__ import main\nmain()"
    return [sys.executable, "-c", f"{ends}\n{run}"]


def synchronous(port: int, delta_s: float, timeout_s: float) -> tuple[carla.Client, carla.World]:
    """Connect, and have the world wait for ticks of ``delta_s``."""
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(timeout_s)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, delta_s
    world.apply_settings(settings)
    return client, world


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"carla-lite ended with {process.returncode} before it listened: see the line above.")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.05)
    raise SystemExit(f"carla-lite did not listen on {port} within {START_S:g} s.")
