"""RPC framing over a real socket pair: order, pipelining, fragments, garbage."""

from __future__ import annotations

import selectors
import socket
from typing import Any

import msgpack
import pytest

from carla_lite.protocol.channel import Channel, listen
from carla_lite.protocol.rpc import DeferredReply, RpcServer


class Peer:
    """A server with one method that notes its calls, and a client on a plain socket."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.left: list[Channel] = []
        self.selector = selectors.DefaultSelector()
        self.listener = listen("127.0.0.1", 0)
        self.server = RpcServer(self.listener, self.selector, self.answer, self.left.append)
        self.client = socket.create_connection(self.listener.getsockname())
        self.client.settimeout(5.0)
        self.replies = msgpack.Unpacker(raw=False)

    def answer(self, method: str, args: list[Any]) -> object:
        self.calls.append((method, args))
        return [[1, len(self.calls)]]

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            for key, mask in self.selector.select(0.05):
                key.data(mask)

    def receive(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found.extend(self.replies)
            if len(found) < count:
                self.replies.feed(self.client.recv(1 << 16))
        return found

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.selector.close()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


def request(number: int, method: str, *args: Any) -> bytes:
    packed: bytes = msgpack.packb([0, number, method, [[False], *args]])
    return packed


def test_pipelined_requests_are_executed_and_answered_in_order(peer: Peer) -> None:
    peer.client.sendall(b"".join(request(number, f"m{number}", number) for number in range(100)))
    peer.turn()
    assert peer.calls == [(f"m{number}", [number]) for number in range(100)]
    assert peer.receive(100) == [[1, number, None, [[1, number + 1]]] for number in range(100)]


def test_a_request_may_come_byte_by_byte(peer: Peer) -> None:
    for byte in request(7, "version"):
        peer.client.sendall(bytes((byte,)))
        peer.turn(1)
    peer.turn()
    assert peer.receive(1) == [[1, 7, None, [[1, 1]]]]


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xc1", msgpack.packb([2, "notify", []]), msgpack.packb([0, 1, "x", []]), b"\x93\x01"],
)
def test_garbage_ends_the_connection_and_calls_nothing(peer: Peer, garbage: bytes) -> None:
    peer.client.sendall(garbage)
    peer.client.shutdown(socket.SHUT_WR)
    peer.turn()
    assert peer.client.recv(100) == b""
    assert peer.calls == []


def test_a_reply_larger_than_the_sockets_buffer_arrives_whole(peer: Peer) -> None:
    large = "x" * 20_000_000
    peer.answer = None  # type: ignore[method-assign, assignment]
    peer.server._answer = lambda _method, _args: large
    peer.client.sendall(request(1, "get_map_data"))
    peer.client.settimeout(0.01)
    received = bytearray()
    while len(received) < len(large):
        peer.turn(1)
        try:
            received += peer.client.recv(1 << 20)
        except TimeoutError:
            continue
    peer.turn(1)
    assert msgpack.unpackb(received) == [1, 1, None, large]


def test_deferred_calls_are_answered_later_in_order(peer: Peer) -> None:
    answered = peer.server._answer

    def defer(method: str, args: list[Any]) -> object:
        if method != "version":
            raise DeferredReply(method)
        return answered(method, args)

    peer.server._answer = defer
    peer.client.sendall(b"".join(request(number, name) for number, name in enumerate(["a", "version", "b"])))
    peer.turn()
    assert [reply[1] for reply in peer.receive(1)] == [1]
    peer.server.resume()
    assert [method for method, _ in peer.calls] == ["version"]
    peer.server._answer = answered
    peer.server.resume()
    assert [reply[1] for reply in peer.receive(2)] == [0, 2]
    assert [method for method, _ in peer.calls] == ["version", "a", "b"]
    peer.server.resume()
    assert len(peer.calls) == 3
