"""Fixtures that every room's tests share: a real carla-lite server on a free port."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from carla_launcher.ports import free_ports
from carla_run.signals import wait_or_kill

REPOSITORY = Path(__file__).resolve().parent.parent

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--simulator",
        metavar="HOST:PORT",
        help="Run the tests marked any_simulator, and no others, against a CARLA that runs there.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With another simulator, leave out the tests of carla-lite itself, which would be started beside it."""
    if config.getoption("--simulator") is None:
        return
    left_out = [item for item in items if item.get_closest_marker("any_simulator") is None]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@dataclass
class Server:
    """A carla-lite process that a test started."""

    port: int
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it the way a crash does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it in order, and by force if that takes too long; nothing happens where it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
            wait_or_kill(self.process, 10)


StartServer = Callable[..., Server]


def ports(count: int) -> int:
    """Return the first of so many neighbouring ports that are free on the loopback."""
    port = free_ports(random.Random(), count)
    assert port is not None
    return port


def port_pair() -> int:
    """Return a port N such that N (RPC) and N+1 (streams) are free on the loopback."""
    return ports(2)


def serve(
    map: str = "Lite01", seed: int = 0, port: int | None = None, extra: tuple[str, ...] = (), prelude: str = ""
) -> Server:
    """Start carla-lite and return once it listens; ``prelude`` is Python that its process runs first."""
    port = port or port_pair()
    program = ["-c", f"{prelude}\nfrom carla_lite.__main__ import main\nmain()"] if prelude else ["-m", "carla_lite"]
    command = [sys.executable, *program, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--map", map, "--seed", str(seed), *extra],
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    server = Server(port, process)
    try:
        wait_for_port(server)
    except AssertionError:
        server.end()
        raise
    return server


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start carla-lite, as :func:`serve` does; ended after the test."""
    started: list[Server] = []

    def start(*arguments: Any, **named: Any) -> Server:
        started.append(serve(*arguments, **named))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def module_server() -> Iterator[Server]:
    """A carla-lite of a module's tests, which leave it as they found it; what needs a fresh one starts its own."""
    server = serve()
    yield server
    server.end()


def wait_for_port(server: Server, timeout_s: float = 120.0) -> None:
    """Return once the server accepts connections; fail the test if it ends first."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert server.process.poll() is None, f"carla-lite ended with {server.process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"carla-lite did not listen on {server.port} within {timeout_s} s")
