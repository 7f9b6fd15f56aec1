"""TCP ports on 127.0.0.1: finds consecutive free ports for simulators, and the program that uses a port.

Binds ports only to test them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

LOWEST_PORT = 20_000
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
ATTEMPTS = 500
DOCKER_LIMIT_S = 10.0
DOCKERS_OWN = "docker-proxy"
"""Docker's program that listens on the published ports of containers."""


def free_ports(rng: random.Random, count: int) -> int | None:
    """Return the first of ``count`` consecutive ports that are free on 127.0.0.1; None if none were found.

    CARLA needs three. The ports are below the kernel's range for outgoing connections. In that range, a client that
    reconnects while its simulator restarts could get the simulator's port for its own end, and connect to itself.
    """
    highest = 32_768
    with contextlib.suppress(OSError, ValueError):
        highest = int(PORT_RANGE.read_text(encoding="ascii").split()[0])
    lowest = LOWEST_PORT if highest > LOWEST_PORT + 1000 else 2000
    for _ in range(ATTEMPTS):
        port = rng.randrange(lowest, max(highest, lowest + 1000) - count)
        if all(_is_free(each) for each in range(port, port + count)):
            return port
    return None


def holder(port: int) -> str:
    """Return the names of the programs or containers that use a port of 127.0.0.1; empty if it is free."""
    if _is_free(port, after_others=True):
        return ""
    pids = {pid for taken, pid in _listening() if taken == port}
    names = {_name(pid) for pid in pids}
    if not names or None in pids or any(name.startswith(DOCKERS_OWN) for name in names):
        names = set(_containers(port)) or names
    return ", ".join(sorted(names)) or "another process"


def _is_free(port: int, after_others: bool = False) -> bool:
    """Return whether a port can be bound. With ``after_others``, a port of connections that still close is free."""
    with socket.socket() as probe:
        if after_others:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _listening() -> Iterator[tuple[int, int | None]]:
    try:
        sockets = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return
    for each in sockets:
        if each.status == psutil.CONN_LISTEN and each.laddr:
            yield each.laddr.port, each.pid


def _name(pid: int | None) -> str:
    try:
        return "a process of another user" if pid is None else f"{psutil.Process(pid).name()} (process {pid})"
    except psutil.Error:
        return f"process {pid}"


def _containers(port: int) -> list[str]:
    """Return the containers that publish a port; empty if Docker doesn't answer."""
    command = ["docker", "ps", "--filter", f"publish={port}", "--format", "{{.Names}}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOCKER_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [f"container {name}" for name in asked.stdout.split()] if asked.returncode == 0 else []
