"""How faults are asked for: the control port's lines and who can reach it, the command line, the environment."""

from __future__ import annotations

import socket
import subprocess
import time

import psutil
import pytest

from tests.conftest import port_pair
from tests.crowd import until
from tests.faults import Faulty, listens, run, started


def test_what_waits_can_be_called_off(faulty: Faulty) -> None:
    faulty.tell("fault exit:code=1,after_s=1")
    assert faulty.status()["waiting"] == "exit:after_s=1.0,code=1"
    faulty.tell("clear")
    time.sleep(1.2)
    assert faulty.status()["waiting"] == ""


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("fault crsh", "error fault 'crsh' doesn't exist, expected one of crash, "),
        ("fault slow-start:by_s=1", "error fault slow-start can only be at the start"),
        ("melt", "error command 'melt' doesn't exist, expected fault "),
        ("", "error command '' doesn't exist"),
    ],
)
def test_the_control_port_says_what_it_does_not_understand(faulty: Faulty, line: str, answer: str) -> None:
    assert faulty.tell(line).startswith(answer)
    assert faulty.status()["active"] == ""


def test_the_control_port_ends_a_line_without_end(faulty: Faulty) -> None:
    with socket.create_connection(("127.0.0.1", faulty.server.control), timeout=5) as connection:
        connection.sendall(b"sta")
        connection.sendall(b"tus\r\nclear\n")
        with connection.makefile() as answers:
            assert answers.readline().startswith("ok frame=")
            assert answers.readline() == "ok\n"
            connection.sendall(b"x" * 5000)
            assert answers.readline() == ""
    assert faulty.tell("clear") == "ok"


def listening(process: subprocess.Popen[str]) -> set[tuple[str, int]]:
    connections = psutil.Process(process.pid).net_connections("inet")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}


def test_without_a_control_port_nothing_more_listens() -> None:
    with started("--host", "127.0.0.1", "--fault", "hang:after_s=60") as (port, process):
        until(lambda: len(listening(process)) >= 2)
        assert listening(process) == {("127.0.0.1", port), ("127.0.0.1", port + 1)}


def test_the_control_port_listens_on_the_loopback_only() -> None:
    control = port_pair()
    with started("--host", "127.0.0.2", "--control-port", str(control)) as (port, process):
        everything = {("127.0.0.2", port), ("127.0.0.2", port + 1), ("127.0.0.1", control)}
        until(lambda: len(listening(process)) >= len(everything))  # the control port is the first to be there
        assert listening(process) == everything
        assert not listens(control, "127.0.0.2")


def test_a_control_port_in_use_is_named(faulty: Faulty) -> None:
    ended = run("--control-port", str(faulty.server.control))
    assert ended.returncode == 69
    assert ended.stderr.count("\n") == 1
    assert f"127.0.0.1:{faulty.server.control}" in ended.stderr


def test_a_fault_that_can_not_be_is_a_matter_of_usage() -> None:
    ended = run("--fault", "hang", "--fault", "crash:signal=STOP")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "signal is 'STOP'" in ended.stderr


def test_the_environment_names_faults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITE_FAULTS", "log:lines=lavapipe exit:code=9")
    ended = run()
    assert ended.returncode == 9
    assert "lavapipe is not" in ended.stdout
