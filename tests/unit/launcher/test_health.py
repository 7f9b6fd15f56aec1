"""Recognising a simulator: small servers that imitate one in different ways."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgpack
import pytest

from carla_launcher import config, wiring
from carla_launcher.observe import health
from carla_launcher.observe.health import Address
from tests.crowd import PATIENCE_S

TIMEOUT_S = 0.3
STREAM_ID = 4711


@dataclass
class Simulator:
    """The least that speaks CARLA's protocol: RPC and world stream, each on its own port."""

    synchronous: bool = False
    ticking: bool = True
    answers: bool = True
    frame: int = 100
    ticks_asked: int = 0
    world: int = 17

    def rpc(self, connection: socket.socket) -> None:
        requests = msgpack.Unpacker()
        while received := connection.recv(4096):
            requests.feed(received)
            for _, number, method, arguments in requests:
                assert arguments[0] == [False], "the first argument is the call's metadata"
                if self.answers:
                    connection.sendall(msgpack.packb([1, number, None, [[1, self.answer(method)]]]))

    def answer(self, method: str) -> object:
        if method == "tick_cue":
            self.ticks_asked += 1
            self.frame += self.ticking
            return self.frame
        token = struct.pack("<IHBB16x", STREAM_ID, self.stream_port, 1, 0)
        return {
            "version": "0.9.16",
            "get_episode_info": [1, [token]],
            "get_episode_settings": [self.synchronous, False, [False]],
        }[method]

    def stream(self, connection: socket.socket) -> None:
        assert struct.unpack("<I", connection.recv(4)) == (STREAM_ID,)
        sent = 0
        for _ in range(4000):
            self.frame += self.ticking and not self.synchronous
            frame = self.frame  # once: a tick may come between sending it and noting that it was sent
            if frame != sent:
                message = struct.pack("<QQ", self.world, frame) + bytes(32 + 36)
                connection.sendall(struct.pack("<I", len(message)) + message)
                sent = frame
            time.sleep(0.005)

    stream_port: int = 0


Serve = Callable[[Callable[[socket.socket], None]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve connections with a function, on a free port that is returned."""
    listeners: list[socket.socket] = []

    def start(handle: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()

        def guarded(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                handle(connection)

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def start(serve: Serve, simulator: Simulator) -> Address:
    simulator.stream_port = serve(simulator.stream)
    return Address("127.0.0.1", serve(simulator.rpc))


@pytest.mark.parametrize("world", [17, 16], ids=["0.9.16", "0.9.15"])
def test_a_simulator_that_answers_and_ticks_is_healthy(serve: Serve, world: int) -> None:
    simulator = Simulator(world=world)
    found = health.check(start(serve, simulator), PATIENCE_S)
    assert found.ok, found.problem
    assert (found.version, simulator.ticks_asked) == ("0.9.16", 0)
    assert found.frame > 100


def test_one_left_in_synchronous_mode_is_ticked_to_see_that_it_moves(serve: Serve) -> None:
    simulator = Simulator(synchronous=True)
    assert health.check(start(serve, simulator), PATIENCE_S, may_tick=True).ok
    assert simulator.ticks_asked > 0


@pytest.mark.parametrize(("ours", "in_use"), [(True, True), (False, False), (False, True)])
def test_one_in_use_or_not_ours_is_its_clients_to_tick(serve: Serve, ours: bool, in_use: bool) -> None:
    simulator = Simulator(synchronous=True)
    limits = config.load()
    patient = limits.simulator.model_copy(update={"check_timeout_s": PATIENCE_S})
    limits = limits.model_copy(update={"simulator": patient})
    assert wiring.questions(start(serve, simulator), limits, ours=ours).ready(in_use).ok
    assert simulator.ticks_asked == 0


@pytest.mark.parametrize("synchronous", [False, True])
def test_one_that_answers_version_but_stands_still_is_not_healthy(serve: Serve, synchronous: bool) -> None:
    simulator = Simulator(synchronous=synchronous, ticking=False)
    found = health.check(start(serve, simulator), TIMEOUT_S, may_tick=True)
    assert "frames don't advance" in found.problem


def test_an_open_port_that_is_silent_is_not_healthy(serve: Serve) -> None:
    found = health.check(start(serve, Simulator(answers=False)), TIMEOUT_S)
    assert "`version` isn't answered" in found.problem


def test_nobody_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    assert health.check(Address("127.0.0.1", port), TIMEOUT_S).problem == "nothing listens there"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\xc1" * 8,
        b"",
        msgpack.packb([1, 1, "no such method", None]),
        msgpack.packb([1, 1, None, [[0, ["unknown"]]]]),
        msgpack.packb({"version": 1}),
        bytes(1000),
    ],
    ids=["http", "ssh", "no msgpack", "hangs up", "error", "failure", "a map", "zeros"],
)
def test_somebody_else_there_is_never_taken_for_a_simulator(serve: Serve, answer: bytes) -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(answer)

    found = health.check(Address("127.0.0.1", serve(reply)), TIMEOUT_S)
    assert "doesn't speak CARLA's protocol" in found.problem


def test_a_name_that_does_not_resolve_is_said() -> None:
    assert health.check(Address("no-such-host.invalid", 2000), TIMEOUT_S).problem
