"""Free TCP ports on the loopback, in a row as simulators take them. Binds nothing for longer than a look."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

LOWEST_PORT = 20_000
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
ATTEMPTS = 500


def free_port_pair(rng: random.Random) -> int | None:
    """Return a port N with N and N+1 free on the loopback (carla-lite's), or None if none was found."""
    return _free_ports(rng, 2)


def free_port_triple(rng: random.Random) -> int | None:
    """Return a port N with N, N+1 and N+2 free on the loopback (CARLA's), or None if none was found."""
    return _free_ports(rng, 3)


def _free_ports(rng: random.Random, count: int) -> int | None:
    """Return the first of ``count`` free ports.

    Below the range that the kernel takes for outgoing connections: while the simulator is being restarted, a client
    that retries to connect could otherwise be given the very port as its own and connect to itself.
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


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
