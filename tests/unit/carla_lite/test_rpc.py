"""RPC framing over a real socket pair: order, pipelining, fragments, garbage."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
from typing import Any

import msgpack
import pytest

from carla_lite.protocol import rpc
from carla_lite.protocol.channel import Channel, listen
from carla_lite.protocol.rpc import DeferredReply, RpcServer


class Peer:
    """A server with one method that notes its calls, and a client on a plain socket."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.left: list[Channel] = []
        self.reply = ""
        self.selector = selectors.DefaultSelector()
        self.listener = listen("127.0.0.1", 0)
        self.server = RpcServer(self.listener, self.selector, self.answer, self.left.append)
        self.client = socket.create_connection(self.listener.getsockname())
        self.client.settimeout(5.0)
        self.replies = msgpack.Unpacker(raw=False)

    def answer(self, method: str, args: list[Any]) -> object:
        self.calls.append((method, args))
        return self.reply or [[1, len(self.calls)]]

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


def flood(peer: Peer, data: bytes, client: socket.socket | None = None) -> bool:
    """Send as much as the server takes; return whether it has closed the connection."""
    sender, left = client or peer.client, memoryview(data)
    sender.setblocking(False)
    while left and not peer.left:
        with contextlib.suppress(BlockingIOError):
            left = left[sender.send(left) :]
        for key, mask in peer.selector.select(0):
            key.data(mask)
    while (ready := peer.selector.select(0.05)) and not peer.left:
        for key, mask in ready:
            key.data(mask)
    return bool(peer.left)


ROOM = 1 << 20


def half_a_text(size: int, announced: int) -> bytes:
    return b"\x94\x00\x01\xa8get_maps\x92\x91\xc2\xdb" + announced.to_bytes(4, "big") + b"x" * size


@pytest.mark.parametrize(
    ("start", "closed"),
    [
        (b"\xdd\xff\xff\xff\xff", True),  # an array of 2^32 items
        (b"\xdd\x00\x10\x00\x00" * 400, False),
        (b"\xdd\x00\x10\x00\x00" * 5000, True),  # nested too deeply
        (b"\xdb\xff\xff\xff\xff", False),  # a text of 4 GiB, of which nothing comes
        (b"\x81\xa1a\x01", True),  # a map
        (half_a_text(ROOM // 2, ROOM - 1000), False),
        (half_a_text(ROOM - 1, ROOM), True),
    ],
    ids=["items", "nested", "deep", "text", "map", "half", "large"],
)
def test_an_unfinished_message_is_bounded(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, start: bytes, closed: bool
) -> None:
    monkeypatch.setattr(rpc, "MOST_BYTES", ROOM)
    assert flood(peer, start) == closed
    assert peer.calls == []


def test_many_lists_in_one_message_are_refused(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MOST_LISTS", 1000)
    assert flood(peer, b"\x94\x00\x01\xa1m\x92\x90\xdc\x04\x00" + b"\x90" * 1024)
    assert peer.calls == []


def test_unfinished_messages_share_their_room(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MOST_BYTES", 3 * ROOM)
    others = [socket.create_connection(peer.listener.getsockname()) for _ in range(3)]
    begun = half_a_text(ROOM, 2 * ROOM)
    assert [flood(peer, begun, other) for other in others[:2]] == [False, False]
    assert flood(peer, begun + b"x" * ROOM + request(1, "version"))
    assert len(peer.left) == 1
    others[2].sendall(request(2, "version"))
    peer.turn()
    assert peer.calls == [("version", [])]


def test_a_client_that_reads_no_replies_is_closed(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MOST_UNREAD_BYTES", 1 << 20)
    peer.reply = "x" * (1 << 19)
    peer.client.sendall(b"".join(request(number, "get_map_data") for number in range(200)))
    peer.turn()
    assert len(peer.left) == 1
    assert len(peer.calls) < 50


def test_a_text_that_is_no_utf_8_is_answered(peer: Peer) -> None:
    peer.client.sendall(msgpack.packb([0, 5, "m", [[False], "x"]]).replace(b"\xa1x", b"\xa1\xff"))
    peer.turn()
    assert peer.receive(1) == [[1, 5, None, [[1, 1]]]]
    assert peer.calls == [("m", ["�"])]


def test_a_server_without_files_left_turns_clients_away(peer: Peer) -> None:
    peer.turn()  # takes the client
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket() for _ in range(3)]
    files: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(each.fileno() for each in waiting) + 20, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                files.append(os.dup(0))
        for each in waiting:
            each.connect(peer.listener.getsockname())
        peer.turn(6)
        assert not peer.selector.select(0)  # nothing wakes the loop without end
        peer.client.sendall(request(1, "version"))
        peer.turn()
        assert peer.receive(1) == [[1, 1, None, [[1, 1]]]]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in files:
            os.close(file)
        for each in waiting:
            each.close()
