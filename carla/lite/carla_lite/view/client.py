"""A small client of the server's protocol: calls, and the world's stream (protocol, sections 2 and 3)."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from typing import Any

import msgpack

from carla_lite.protocol import wire

TIMEOUT_S = 10.0
"""A world that is paused, or hung by a fault, answers late or not at all."""
_SIZE = struct.Struct("<I")


class LostError(Exception):
    """The server is gone, or doesn't answer."""


class Rpc:
    """One connection; calls from several threads wait for one another."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_S)
        except OSError as error:
            raise LostError(f"nothing answers at {host}:{port}") from error
        self._replies = msgpack.Unpacker(max_buffer_size=1 << 30, strict_map_key=False)
        self._numbers = itertools.count(1)
        self._calling = threading.Lock()

    def call(self, method: str, *args: object) -> Any:
        """Return a call's value.

        Raises:
            LostError: there is no answer.
            RpcError: the call is refused.
        """
        with self._calling:
            number = next(self._numbers)
            try:
                self._socket.sendall(msgpack.packb([0, number, method, [[False], *args]]))
                while True:
                    for reply in self._replies:
                        if reply[1] == number:
                            return _value(reply)
                    received = self._socket.recv(1 << 16)
                    if not received:
                        raise LostError("the server closed the connection")
                    self._replies.feed(received)
            except OSError as error:
                raise LostError(f"{method} isn't answered") from error

    def world_stream(self) -> tuple[int, socket.socket]:
        """Return the episode's number and a subscription to the world's stream."""
        episode, (token,) = self.call("get_episode_info")
        stream, port = struct.unpack_from("<IH", token)
        try:
            subscribed = socket.create_connection((self.host, port), TIMEOUT_S)
            subscribed.sendall(_SIZE.pack(stream))
        except OSError as error:
            raise LostError("the world's stream can't be had") from error
        return episode, subscribed

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


class Messages:
    """The messages of a stream; never waits longer than it is told."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._bytes = stream, bytearray()

    def newest(self, wait_s: float) -> bytes | None:
        """Return the newest complete message; None if there is none within ``wait_s``.

        Raises:
            LostError: the stream has ended.
        """
        self._stream.settimeout(wait_s)
        try:
            while part := self._stream.recv(1 << 20):
                self._bytes += part
                self._stream.settimeout(0.0)
        except (TimeoutError, BlockingIOError):
            return self._last()
        except OSError as error:
            raise LostError("the world's stream has ended") from error
        raise LostError("the world's stream has ended")

    def _last(self) -> bytes | None:
        found, at = None, 0
        while len(self._bytes) >= at + _SIZE.size:
            (size,) = _SIZE.unpack_from(self._bytes, at)
            if len(self._bytes) < at + _SIZE.size + size:
                break
            found = bytes(self._bytes[at + _SIZE.size : at + _SIZE.size + size])
            at += _SIZE.size + size
        del self._bytes[:at]
        return found


def _value(reply: list[Any]) -> Any:
    """Return T out of ``[1, id, nil, [[1, T]]]``, or nothing for a call without a result."""
    answer = reply[3]
    match answer:
        case [[1, value]]:
            return value
        case [[0, [message]]] | [[0, message]]:
            raise wire.RpcError(str(message))
    return None
