"""Streams over real sockets: subscription, broadcast, silence, slow readers, the wait for an announced reader."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from tests.crowd import PATIENCE_S


@pytest.fixture
def streams():
    streams = Streams(listen("127.0.0.1", 0))
    yield streams
    streams.close()


def subscribe(streams: Streams, stream: int) -> socket.socket:
    reader = socket.create_connection(("127.0.0.1", streams.port))
    reader.settimeout(PATIENCE_S)
    reader.sendall(struct.pack("<I", stream))
    return reader


def turn(streams: Streams) -> None:
    for _ in range(3):
        streams.serve(0.05)


def receive(reader: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += reader.recv(count - len(data))
        return data

    return exactly(struct.unpack("<I", exactly(4))[0])


def test_a_message_goes_to_every_subscriber_of_its_stream_alone(streams: Streams) -> None:
    one, other = streams.open(), streams.open()
    readers = [subscribe(streams, one), subscribe(streams, one), subscribe(streams, other)]
    turn(streams)
    streams.publish(one, (b"head", memoryview(b"body")))
    streams.publish(other, (b"else",))
    assert [receive(reader) for reader in readers] == [b"headbody", b"headbody", b"else"]


def test_an_unknown_stream_stays_open_and_silent(streams: Streams) -> None:
    reader = subscribe(streams, 1)
    turn(streams)
    reader.settimeout(0.1)
    with pytest.raises(TimeoutError):
        reader.recv(1)


def test_a_welcome_comes_first(streams: Streams) -> None:
    stream = streams.open(lambda: (b"state",))
    reader = subscribe(streams, stream)
    turn(streams)
    streams.publish(stream, (b"next",))
    assert [receive(reader), receive(reader)] == [b"state", b"next"]


def test_a_slow_reader_blocks_nobody_and_gets_all(streams: Streams) -> None:
    stream = streams.open()
    reader = subscribe(streams, stream)
    turn(streams)
    block = bytearray(1_000_000)
    for number in range(20):
        block[0] = number
        streams.publish(stream, (block,))  # 20 MB are more than any socket's buffer; the block is reused meanwhile
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            streams.serve(0.02)

    serving = threading.Thread(target=serve)
    serving.start()
    assert [receive(reader)[0] for _ in range(20)] == list(range(20))
    done.set()
    serving.join()


def test_a_reader_who_stopped_reading_costs_bounded_memory(streams: Streams) -> None:
    stream = streams.open()
    reader = subscribe(streams, stream)
    turn(streams)
    for _ in range(150):
        streams.publish(stream, (bytes(1_000_000),))
    (channel,) = streams._subscribers[stream]
    assert channel.backlog_bytes <= (64 << 20) + 1_000_000
    reader.close()


def test_a_reader_who_leaves_is_forgotten(streams: Streams) -> None:
    stream = streams.open()
    reader = subscribe(streams, stream)
    turn(streams)
    assert streams.has_subscribers(stream)
    reader.close()
    turn(streams)
    assert not streams.has_subscribers(stream)
    streams.publish(stream, (b"no one",))


def test_an_announced_subscriber_is_waited_for_and_only_once(streams: Streams) -> None:
    stream = streams.open()
    streams.announce(stream)
    late = threading.Timer(0.1, subscribe, (streams, stream))
    late.start()
    streams.wait_for_announced(PATIENCE_S)
    assert streams.has_subscribers(stream)
    streams.announce(stream)
    streams.wait_for_announced(0.1)
    streams.wait_for_announced(PATIENCE_S)
    late.join()


def test_stream_numbers_start_anywhere(streams: Streams) -> None:
    another = Streams(listen("127.0.0.1", 0))
    assert another.open() != streams.open()
    another.close()
