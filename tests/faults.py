"""A carla-lite that can be told to go wrong while it runs: its control port, and what is seen of it from outside."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from carla_launcher.observe.health import Address, check
from carla_lite import testing
from tests.conftest import Server, port_pair
from tests.crowd import PATIENCE_S

tell = functools.partial(testing.tell, limit_s=PATIENCE_S)
CHECK_S = 1.0
"""Patience of a health check that shall find something wrong."""


@dataclass
class Faulty:
    """A server that is told by its control port to go wrong."""

    server: Server

    def tell(self, line: str) -> str:
        return tell(self.server.control, line)

    def status(self) -> dict[str, str]:
        kind, _, fields = self.tell("status").partition(" ")
        assert kind == "ok"
        return dict(field.split("=", 1) for field in fields.split(" "))

    def held_mib(self) -> int:
        return int(self.status()["held_mib"])

    def check(self, limit_s: float = PATIENCE_S, may_tick: bool = True) -> str:
        """Return the health check's problem."""
        return check(Address("127.0.0.1", self.server.port), limit_s, may_tick=may_tick).problem

    def anonymous_mib(self) -> float:
        status = Path(f"/proc/{self.server.pid}/status").read_text(encoding="ascii")
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carla_lite", "--port", str(port_pair()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server and don't wait for its port; yields port and process."""
    port = port_pair()
    command = [sys.executable, "-m", "carla_lite", "--port", str(port), *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield port, process
        finally:
            process.kill()


def listens(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True
