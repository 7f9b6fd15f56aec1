"""Fixtures that every room's tests share: a real carla-lite server on a free port."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def free_port_pair() -> int:
    """Return a port N such that N (RPC) and N+1 (streams) are free on the loopback."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            second = stack.enter_context(socket.socket())
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@dataclass
class Server:
    """A carla-lite process that a test started."""

    port: int
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it the way a crash does."""
        self.process.kill()
        self.process.wait()


StartServer = Callable[..., Server]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start carla-lite: ``start_server(map="Lite01", seed=0, port=None, extra=())``; ended after the test."""
    started: list[Server] = []

    def start(map: str = "Lite01", seed: int = 0, port: int | None = None, extra: tuple[str, ...] = ()) -> Server:
        port = port or free_port_pair()
        command = [sys.executable, "-m", "carla_lite", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(
            [*command, "--map", map, "--seed", str(seed), *extra],
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        server = Server(port, process)
        started.append(server)
        wait_for_port(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.terminate()
            try:
                server.process.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def wait_for_port(server: Server, timeout_s: float = 30.0) -> None:
    """Return once the server accepts connections; fail the test if it ends first."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert server.process.poll() is None, f"carla-lite ended with {server.process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"carla-lite did not listen on {server.port} within {timeout_s} s")
