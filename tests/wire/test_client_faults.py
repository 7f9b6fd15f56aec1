"""Faults as the real client, the launcher's health check and the kernel see them."""

from __future__ import annotations

import contextlib
import queue
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import carla
import numpy as np
import psutil
import pytest

from launcher.watching.health import Address, check
from tests.conftest import Server, StartServer, port_pair
from tests.faults import tell
from tests.wire.conftest import Connect

PROTOCOL_VERSION = "0.9.16"
CHECK_S = 1.0


@dataclass
class Faulty:
    """A server with a control port."""

    server: Server
    control: int

    def tell(self, line: str) -> str:
        return tell(self.control, line)

    def status(self) -> dict[str, str]:
        kind, _, fields = self.tell("status").partition(" ")
        assert kind == "ok"
        return dict(field.split("=", 1) for field in fields.split(" "))

    def held_mib(self) -> int:
        return int(self.status()["held_mib"])

    def check(self, in_use: bool = False) -> str:
        """Return the health check's problem."""
        return check(Address("127.0.0.1", self.server.port), CHECK_S, in_use).problem

    def anonymous_mib(self) -> float:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024


@pytest.fixture
def faulty(start_server: StartServer) -> Faulty:
    return with_control(start_server)


def with_control(start_server: StartServer, *flags: str) -> Faulty:
    control = port_pair()
    faulty = Faulty(start_server(extra=("--control-port", str(control), *flags)), control)
    assert faulty.status()["frame"].isdigit()  # its port opens before its world is built
    return faulty


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carla_lite", "--port", str(port_pair()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


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


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


ENDS = [
    ("crash", -signal.SIGSEGV),
    ("crash:signal=ABRT", -signal.SIGABRT),
    ("crash:signal=KILL", -signal.SIGKILL),
    ("crash:signal=TERM", -signal.SIGTERM),
    ("exit:code=3", 3),
    ("vulkan-oom", 139),
]


@pytest.mark.parametrize(("fault", "code"), ENDS)
def test_a_server_that_is_told_to_dies_as_it_was_told(faulty: Faulty, fault: str, code: int) -> None:
    assert faulty.tell(f"fault {fault}") == "ok"
    assert faulty.server.process.wait(5) == code


def test_it_dies_after_exactly_so_many_ticks(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    assert faulty.tell("fault crash:after_ticks=5") == "ok"
    frame = session.world.tick()
    assert [session.world.tick() for _ in range(4)] == [frame + 1, frame + 2, frame + 3, frame + 4]
    assert faulty.server.process.wait(5) == -signal.SIGSEGV
    session.client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        session.world.tick(0.5)


def test_it_dies_after_so_many_seconds_even_if_nobody_ticks(start_server: StartServer, connect: Connect) -> None:
    server = start_server(extra=("--fault", "exit:code=7,after_s=1.5"))
    begun_s = time.monotonic()
    connect(server)
    assert server.process.wait(10) == 7
    assert time.monotonic() - begun_s > 1.0


def test_an_exit_at_the_start_comes_before_the_port_opens() -> None:
    with started("--fault", "slow-start:by_s=1", "--fault", "exit:code=12") as (port, process):
        while process.poll() is None:
            assert not listens(port)
            time.sleep(0.05)
        assert process.returncode == 12


def test_a_slow_start_opens_the_port_late() -> None:
    begun_s = time.monotonic()
    with started("--fault", "slow-start:by_s=2") as (port, _):
        until(lambda: listens(port))
        assert time.monotonic() - begun_s > 2.0
        assert check(Address("127.0.0.1", port)).ok


def test_carlas_last_words_come_line_by_line_before_its_end() -> None:
    ended = run("--fault", "log:lines=noise", "--fault", "vulkan-oom")
    assert ended.returncode == 139
    said = [line for line in ended.stdout.split("\n") if not line.startswith("carla-lite:")]
    assert said[2] == "sh: 1: xdg-user-dir: not found"
    assert " with error VK_ERROR_OUT_OF_DEVICE_MEMORY" in said
    assert said.index("Signal 11 caught.") > said.index("Result failed, VkResult=-2")


def test_lavapipe_is_complained_of_and_lived_with(start_server: StartServer, capfd: pytest.CaptureFixture[str]) -> None:
    server = start_server(extra=("--fault", "log:lines=lavapipe"))
    assert check(Address("127.0.0.1", server.port)).ok
    assert (
        "\nWARNING: lavapipe is not a conformant vulkan implementation, testing use only.\n" in capfd.readouterr().out
    )


def test_a_hung_simulation_answers_version_and_no_tick(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    frame = session.world.tick()
    assert faulty.tell("fault hang") == "ok"
    session.client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        session.world.tick(0.5)
    assert carla.Client("127.0.0.1", faulty.server.port).get_server_version() == PROTOCOL_VERSION
    expected = f"`version` is answered ({PROTOCOL_VERSION}), but its frames don't advance"
    assert [faulty.check(), faulty.check(in_use=True)] == [expected, expected]
    assert int(faulty.status()["frame"]) == frame
    assert faulty.status()["active"] == "hang"


def test_a_hung_simulation_sends_no_frame_in_asynchronous_mode_until_it_goes_on(faulty: Faulty) -> None:
    assert faulty.check() == ""
    faulty.tell("fault hang")
    frame = faulty.status()["frame"]
    assert "don't advance" in faulty.check()
    assert faulty.status()["frame"] == frame
    assert faulty.tell("clear") == "ok"
    assert faulty.check() == ""


def test_a_tick_that_hangs_for_a_while_returns_late(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    frame = session.world.tick()
    faulty.tell("fault hang:for_s=1")
    begun_s = time.monotonic()
    assert session.world.tick(10.0) == frame + 1
    assert time.monotonic() - begun_s > 0.5
    assert session.world.tick() == frame + 2


def test_a_dead_rpc_takes_connections_and_is_never_healthy(start_server: StartServer) -> None:
    server = start_server(extra=("--fault", "dead-rpc"))
    assert listens(server.port)
    assert check(Address("127.0.0.1", server.port), CHECK_S).problem == "the port is open, but `version` isn't answered"
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        client.get_server_version()


def test_an_rpc_that_is_dead_for_a_while_answers_what_waited(faulty: Faulty) -> None:
    faulty.tell("fault dead-rpc:for_s=1")
    client = carla.Client("127.0.0.1", faulty.server.port)
    client.set_timeout(10.0)
    begun_s = time.monotonic()
    assert client.get_server_version() == PROTOCOL_VERSION
    assert time.monotonic() - begun_s > 0.5
    assert faulty.check() == ""


def test_held_memory_is_anonymous_and_given_back(faulty: Faulty) -> None:
    before_mib = faulty.anonymous_mib()
    assert faulty.tell("fault hold:mib=100") == "ok"
    assert faulty.held_mib() == 100
    assert faulty.anonymous_mib() - before_mib == pytest.approx(100, abs=3)
    faulty.tell("clear")
    assert faulty.anonymous_mib() == pytest.approx(before_mib, abs=3)


def test_memory_is_held_from_before_the_port_opens(faulty: Faulty, start_server: StartServer) -> None:
    holding = with_control(start_server, "--fault", "hold:mib=150")
    assert holding.anonymous_mib() - faulty.anonymous_mib() == pytest.approx(150, abs=5)


def test_memory_grows_at_the_rate_that_was_asked_for(faulty: Faulty) -> None:
    before_mib = faulty.anonymous_mib()
    begun_s = time.monotonic()
    faulty.tell("fault grow:mib_per_min=1800")
    until(lambda: faulty.held_mib() >= 40)
    assert time.monotonic() - begun_s >= 40 / 30
    low_mib, grown_mib, high_mib = faulty.held_mib(), faulty.anonymous_mib() - before_mib, faulty.held_mib()
    faulty.tell("clear")
    assert low_mib - 3 <= grown_mib <= high_mib + 3
    assert faulty.anonymous_mib() == pytest.approx(before_mib, abs=3)


def image(images: queue.Queue[carla.Image]) -> tuple[int, bool]:
    """Return the next image's frame and whether all of its pixels are black."""
    found = images.get(timeout=5)
    pixels = np.frombuffer(found.raw_data, np.uint8).reshape(found.height, found.width, 4)
    assert (pixels[..., 3] == 255).all()
    return found.frame, not pixels[..., :3].any()


def test_dropped_frames_never_arrive_and_the_ones_around_them_do(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    camera = session.camera(session.car())
    first = session.world.tick()
    assert faulty.tell("fault drop:for_ticks=4,after_ticks=2") == "ok"
    assert [session.world.tick() for _ in range(9)] == list(range(first + 1, first + 10))
    arrived = [image(camera.images)[0] - first for _ in range(6)]
    assert arrived == [0, 1, 2, 7, 8, 9]
    assert faulty.status()["active"] == ""


def test_black_frames_are_black_and_on_time(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    camera = session.camera(session.car())
    first = session.world.tick()
    assert faulty.tell("fault black:for_ticks=3") == "ok"
    for _ in range(5):
        session.world.tick()
    seen = [image(camera.images) for _ in range(6)]
    assert seen == [(first + number, number in (1, 2, 3)) for number in range(6)]


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


def test_the_control_port_takes_several_lines_and_ends_a_line_without_end(faulty: Faulty) -> None:
    with socket.create_connection(("127.0.0.1", faulty.control), timeout=5) as connection:
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


def test_without_a_control_port_nothing_more_listens(start_server: StartServer) -> None:
    server = start_server(extra=("--fault", "hang:after_s=60"))
    assert listening(server.process) == {("127.0.0.1", server.port), ("127.0.0.1", server.port + 1)}


def test_the_control_port_listens_on_the_loopback_wherever_the_server_does() -> None:
    control = port_pair()
    with started("--host", "127.0.0.2", "--control-port", str(control)) as (port, process):
        until(lambda: listens(control))
        assert listening(process) == {("127.0.0.2", port), ("127.0.0.2", port + 1), ("127.0.0.1", control)}
        assert not listens(control, "127.0.0.2")


def test_a_control_port_in_use_is_named(faulty: Faulty) -> None:
    ended = run("--control-port", str(faulty.control))
    assert ended.returncode == 69
    assert ended.stderr.count("\n") == 1
    assert f"127.0.0.1:{faulty.control}" in ended.stderr


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
