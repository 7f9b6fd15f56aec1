"""Faults as the real client, the launcher's health check and the kernel see them."""

from __future__ import annotations

import queue
import signal

import carla
import numpy as np
import pytest

from carla_launcher.observe.health import Address, check
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S, until
from tests.faults import CHECK_S, Faulty, listens, run, started
from tests.wire.conftest import Connect, StartFaulty

PROTOCOL_VERSION = "0.9.16"

ENDS = [
    ("crash", -signal.SIGSEGV),
    ("crash:signal=ABRT", -signal.SIGABRT),
    ("crash:signal=KILL", -signal.SIGKILL),
    ("crash:signal=TERM", -signal.SIGTERM),
    ("exit:code=3", 3),
    ("vulkan-oom", 139),
]


@pytest.mark.parametrize(("fault", "code"), ENDS)
def test_a_server_dies_as_the_fault_says(faulty: Faulty, fault: str, code: int) -> None:
    assert faulty.tell(f"fault {fault}") == "ok"
    assert faulty.server.process.wait(PATIENCE_S) == code


def test_a_server_that_ignores_sigterm_serves_on(faulty: Faulty) -> None:
    assert faulty.tell("fault ignore-sigterm") == "ok"
    until(lambda: "ignore-sigterm" not in faulty.tell("status"))  # it begins at the server's next turn
    faulty.server.process.terminate()
    assert faulty.check() == ""
    assert faulty.server.process.poll() is None
    faulty.server.kill()


def test_it_dies_after_exactly_so_many_ticks(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    assert faulty.tell("fault crash:after_ticks=5") == "ok"
    frame = session.world.tick()
    assert [session.world.tick() for _ in range(4)] == [frame + 1, frame + 2, frame + 3, frame + 4]
    assert faulty.server.process.wait(PATIENCE_S) == -signal.SIGSEGV
    session.client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        session.world.tick(0.5)


def test_it_dies_after_so_many_seconds_even_if_nobody_ticks() -> None:
    with started("--fault", "exit:code=7,after_s=1.5") as (_, process):
        assert process.wait(PATIENCE_S) == 7


def test_an_exit_at_the_start_comes_before_the_port_opens() -> None:
    with started("--fault", "slow-start:by_s=1", "--fault", "exit:code=12") as (port, process):
        until(lambda: listens(port) or process.poll() is not None)
        assert process.wait(PATIENCE_S) == 12
        assert not listens(port)


def test_a_slow_start_opens_the_port_in_the_end() -> None:
    with started("--fault", "slow-start:by_s=0.5") as (port, _):
        until(lambda: check(Address("127.0.0.1", port)).ok)


def test_carlas_last_words_come_line_by_line_before_its_end() -> None:
    ended = run("--fault", "log:lines=noise", "--fault", "vulkan-oom")
    assert ended.returncode == 139
    said = [line for line in ended.stdout.split("\n") if not line.startswith("carla-lite:")]
    assert said[2] == "sh: 1: xdg-user-dir: not found"
    assert " with error VK_ERROR_OUT_OF_DEVICE_MEMORY" in said
    assert said.index("Signal 11 caught.") > said.index("Result failed, VkResult=-2")


def test_lavapipe_is_complained_of_and_lived_with(start_server: StartServer) -> None:
    server = start_server(extra=("--fault", "log:lines=lavapipe"))
    until(lambda: check(Address("127.0.0.1", server.port)).ok)
    said = server.output.splitlines()
    assert "WARNING: lavapipe is not a conformant vulkan implementation, testing use only." in said


def test_a_hung_simulation_answers_version_and_no_tick(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    frame = session.world.tick()
    assert faulty.tell("fault hang") == "ok"
    session.client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        session.world.tick(0.5)
    assert carla.Client("127.0.0.1", faulty.server.port).get_server_version() == PROTOCOL_VERSION
    expected = f"`version` is answered ({PROTOCOL_VERSION}), but its frames don't advance"
    until(lambda: faulty.check(CHECK_S) == expected)
    until(lambda: faulty.check(CHECK_S, may_tick=False) == expected)
    assert int(faulty.status()["frame"]) == frame
    assert faulty.status()["active"] == "hang"


def test_a_hung_asynchronous_world_sends_no_frame(faulty: Faulty) -> None:
    assert faulty.check() == ""
    faulty.tell("fault hang")
    frame = faulty.status()["frame"]
    until(lambda: "don't advance" in faulty.check(CHECK_S))
    assert faulty.status()["frame"] == frame
    assert faulty.tell("clear") == "ok"
    assert faulty.check() == ""


def test_a_tick_that_hangs_for_a_while_returns_when_that_is_over(faulty: Faulty, connect: Connect) -> None:
    session = connect(faulty.server)
    frame = session.world.tick()
    faulty.tell("fault hang:for_s=1")
    assert session.world.tick(PATIENCE_S) == frame + 1
    assert faulty.status()["active"] == ""
    assert session.world.tick() == frame + 2


def test_a_dead_rpc_takes_connections_and_is_never_healthy(start_server: StartServer) -> None:
    server = start_server(extra=("--fault", "dead-rpc"))
    assert listens(server.port)
    silent = "the port is open, but `version` isn't answered"
    until(lambda: check(Address("127.0.0.1", server.port), CHECK_S).problem == silent)
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(0.5)
    with pytest.raises(RuntimeError, match="time-out"):
        client.get_server_version()


def test_an_rpc_that_is_dead_for_a_while_answers_what_waited(faulty: Faulty) -> None:
    faulty.tell("fault dead-rpc:for_s=1")
    client = carla.Client("127.0.0.1", faulty.server.port)
    client.set_timeout(PATIENCE_S)
    assert client.get_server_version() == PROTOCOL_VERSION
    assert faulty.status()["active"] == ""
    assert faulty.check() == ""


def test_held_memory_is_anonymous_and_given_back(faulty: Faulty) -> None:
    before_mib = faulty.anonymous_mib()
    assert faulty.tell("fault hold:mib=100") == "ok"
    assert faulty.held_mib() == 100
    assert faulty.anonymous_mib() - before_mib == pytest.approx(100, abs=3)
    faulty.tell("clear")
    assert faulty.anonymous_mib() == pytest.approx(before_mib, abs=3)


def test_memory_is_held_from_before_the_port_opens(faulty: Faulty, start_faulty: StartFaulty) -> None:
    holding = start_faulty("--fault", "hold:mib=150")
    assert holding.anonymous_mib() - faulty.anonymous_mib() == pytest.approx(150, abs=5)


def test_memory_that_grows_is_anonymous_and_given_back(faulty: Faulty) -> None:
    before_mib = faulty.anonymous_mib()
    faulty.tell("fault grow:mib_per_min=1800")
    until(lambda: faulty.held_mib() >= 40)
    low_mib, grown_mib, high_mib = faulty.held_mib(), faulty.anonymous_mib() - before_mib, faulty.held_mib()
    faulty.tell("clear")
    assert low_mib - 3 <= grown_mib <= high_mib + 3
    assert faulty.anonymous_mib() == pytest.approx(before_mib, abs=3)


def image(images: queue.Queue[carla.Image]) -> tuple[int, bool]:
    """Return the next image's frame and whether all of its pixels are black."""
    found = images.get(timeout=PATIENCE_S)
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
    session.ticks(5)
    seen = [image(camera.images) for _ in range(6)]
    assert seen == [(first + number, number in (1, 2, 3)) for number in range(6)]
