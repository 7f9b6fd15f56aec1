"""The streaming port: one TCP connection per subscription, length-prefixed messages to all subscribers of a stream.

Owns stream numbers, subscriptions and the wait for an announced one. Knows no sensor: a message is a list of buffers.
It has its own selector, so that it can be served during an RPC call.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence

from carla_lite.protocol.channel import Buffer, Channel, Connections

Welcome = Callable[[], Sequence[Buffer]]

_SIZE = struct.Struct("<I")

# A stopped client (SIGSTOP, a debugger) must not fill the memory of a free-running server.
_MAX_BACKLOG_BYTES = 64 << 20


class Streams(Connections):
    """All streams of one server.

    Numbers start at random: after a restart, old clients subscribe again to their old numbers, and must not get another
    camera's frames (protocol, section 3.2). Numbers are never reused.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port = int(listener.getsockname()[1])
        self.selector = selectors.EpollSelector()
        self._next = secrets.randbelow(1 << 30) + 1
        self._subscribers: dict[int, list[Channel]] = {}
        self._stream_of: dict[Channel, int] = {}
        self._handshakes: dict[Channel, bytes] = {}
        self._welcomes: dict[int, Welcome] = {}
        self._announced: set[int] = set()
        super().__init__(listener, self.selector)

    def open(self, welcome: Welcome | None = None) -> int:
        """Return the number of a new stream; ``welcome()`` is sent first to each of its subscribers."""
        stream = self._next
        self._next += 1
        if welcome is not None:
            self._welcomes[stream] = welcome
        return stream

    def announce(self, stream: int) -> None:
        """Note that a client has asked for this stream's token and will subscribe at once."""
        self._announced.add(stream)

    def wait_for_announced(self, timeout_s: float) -> None:
        """Serve this port until all announced subscriptions have arrived, at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._announced and (left := deadline - time.monotonic()) > 0:
            self.serve(left)
        self._announced.clear()

    def serve(self, timeout_s: float = 0.0) -> None:
        """Handle arrived data, waiting for it at most ``timeout_s``."""
        for key, mask in self.selector.select(timeout_s):
            key.data(mask)

    def has_subscribers(self, stream: int) -> bool:
        """Return whether the stream has a listener; without one, rendering is wasted."""
        return bool(self._subscribers.get(stream))

    def publish(self, stream: int, parts: Sequence[Buffer]) -> None:
        """Send one message, given as flat buffers, to all listeners; the buffers may be reused afterwards."""
        for channel in tuple(self._subscribers.get(stream, ())):
            if channel.backlog_bytes < _MAX_BACKLOG_BYTES:
                _send(channel, parts)

    def close(self) -> None:
        """Stop listening and end every connection."""
        super().close()
        self.selector.close()

    def joined(self, channel: Channel) -> None:
        """Wait for the subscriber's stream number."""
        self._handshakes[channel] = b""

    def received(self, channel: Channel, data: bytes) -> None:
        """Read the stream number; a subscriber sends nothing else."""
        if channel not in self._handshakes:
            return
        data = self._handshakes[channel] + data
        if len(data) < _SIZE.size:
            self._handshakes[channel] = data
            return
        del self._handshakes[channel]
        self._subscribe(channel, _SIZE.unpack_from(data)[0])

    def _subscribe(self, channel: Channel, stream: int) -> None:
        # A stream that is unknown, or whose sensor is gone, stays open and silent: a client whose connection is closed
        # reconnects thousands of times a second (protocol, section 3.2).
        self._stream_of[channel] = stream
        self._subscribers.setdefault(stream, []).append(channel)
        self._announced.discard(stream)
        if stream in self._welcomes:
            _send(channel, self._welcomes[stream]())

    def left(self, channel: Channel) -> None:
        """Forget a subscriber."""
        self._handshakes.pop(channel, None)
        stream = self._stream_of.pop(channel, None)
        if stream is None:
            return
        self._subscribers[stream].remove(channel)
        if not self._subscribers[stream]:
            del self._subscribers[stream]


def _send(channel: Channel, parts: Sequence[Buffer]) -> None:
    channel.send(_SIZE.pack(sum(map(len, parts))), *parts)
