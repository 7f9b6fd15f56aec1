"""Ports in a row: free, and below those that the kernel gives to outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import pytest

from launcher.ports import PORT_RANGE, free_port_pair, free_port_triple


@pytest.mark.parametrize(("find", "count"), [(free_port_pair, 2), (free_port_triple, 3)])
def test_ports_in_a_row_are_free_and_below_those_of_outgoing_connections(
    find: Callable[[random.Random], int | None], count: int
) -> None:
    port = find(random.Random(1))
    assert port is not None
    lowest_outgoing = int(PORT_RANGE.read_text().split()[0])
    assert port + count - 1 < max(lowest_outgoing, 3000)
    for taken_port in (port, port + count - 1):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", taken_port))
            assert find(random.Random(1)) != port
