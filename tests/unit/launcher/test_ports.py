"""Ports in a row: free, and below those that the kernel gives to outgoing connections; and who has a taken one."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from carla_launcher.ports import PORT_RANGE, free_ports, holder


@pytest.mark.parametrize("count", [2, 3, 12])
def test_ports_are_free_and_below_outgoing_connections(count: int) -> None:
    port = free_ports(random.Random(1), count)
    assert port is not None
    lowest_outgoing = int(PORT_RANGE.read_text().split()[0])
    assert port + count - 1 < max(lowest_outgoing, 3000)
    for taken_port in (port, port + count - 1):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", taken_port))
            assert free_ports(random.Random(1), count) != port


def test_who_has_a_taken_port_is_named_by_program_and_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert holder(port) == f"{psutil.Process().name()} (process {os.getpid()})"
    assert holder(port) == ""


@pytest.mark.parametrize(
    ("program", "expected"),
    [("exit 1", "a process of another user"), ("echo night-carla-1", "container night-carla-1")],
)
def test_an_unseen_holder_is_another_users_or_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{program}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        row = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=SimpleNamespace(port=port), pid=None)
        monkeypatch.setattr(psutil, "net_connections", lambda _kind: [row])
        assert holder(port) == expected


def test_where_sockets_can_not_be_listed_it_is_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    monkeypatch.setenv("PATH", "/nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert holder(taken.getsockname()[1]) == "another process"
