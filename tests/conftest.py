"""Fixtures that every room's tests share: a real carla-lite server on a free port."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from carla_launcher.ports import free_ports
from carla_lite.testing import LiteServer

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


class Server(LiteServer):
    """A carla-lite that a test started, and its process."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        return self._running()

    @property
    def control(self) -> int:
        """Its control port."""
        return int(self._at["control_port"])


StartServer = Callable[..., Server]


def ports(count: int) -> int:
    """Return the first of so many neighbouring ports that are free on the loopback."""
    port = free_ports(random.Random(), count)
    assert port is not None
    return port


def port_pair() -> int:
    """Return a port N such that N (RPC) and N+1 (streams) are free on the loopback."""
    return ports(2)


def serve(map: str = "Lite01", seed: int = 0, port: int = 0, extra: tuple[str, ...] = (), prelude: str = "") -> Server:
    """Start carla-lite and return once it listens; ``prelude`` is Python that its process runs first."""
    folder = Path(tempfile.mkdtemp(prefix="carla-lite-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "sitecustomize.py").write_text(prelude)
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    words = ["--map", map, "--seed", str(seed), "--port", str(port), *extra]
    server = Server(folder, words, {"PYTHONPATH": path} if prelude else {})
    server.start()
    server.wait()
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
