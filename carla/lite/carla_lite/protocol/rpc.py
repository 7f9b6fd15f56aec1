"""msgpack-rpc over TCP: requests are executed and answered in the order of arrival.

Owns the framing, the memory that unfinished messages and unread replies take, and the reply to a malformed caller (the
connection is closed). Knows no CARLA method: the creator of an ``RpcServer`` passes the function that answers.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from typing import Any

import msgpack

from carla_lite.protocol.channel import Channel, Connections

_REQUEST, _RESPONSE = 0, 1

MOST_BYTES, MOST_LISTS = 40 << 20, 5_000_000
"""Bytes and lists that the unfinished messages of all clients may have together.

A texture is the largest message that programs send: at 2048 × 2048 pixels of 9 bytes it has 36 MiB, and a list a pixel.
The OpenDRIVE text of a large town has a few MiB, and so has a batch that spawns thousands of actors. A list of one byte
takes 64 in memory.
"""
MOST_UNREAD_BYTES = 64 << 20
"""Replies that a client may leave unread before it sends its next call."""

Answer = Callable[[str, list[Any]], object]
Leave = Callable[[Channel], None]


class DeferredReply(Exception):  # noqa: N818 (no error: a signal to the caller)
    """A call gets no answer now; it waits for :meth:`RpcServer.resume`."""


class _Incoming:
    """What a client has sent of its next message: its size so far, without the rest of the packet before it."""

    __slots__ = ("lists", "size", "unpacker")

    def __init__(self) -> None:
        self.size = self.lists = 0
        self.unpacker = msgpack.Unpacker(
            raw=False,
            unicode_errors="replace",  # a text that is no UTF-8 gets an answer, too
            strict_map_key=False,
            list_hook=self._counted,
            object_hook=_no_map,
            max_buffer_size=MOST_BYTES,
            max_array_len=MOST_LISTS,
            max_map_len=0,
        )

    def _counted(self, found: list[Any]) -> list[Any]:
        self.lists += 1
        if self.lists > MOST_LISTS:
            raise ValueError(f"a message has more than {MOST_LISTS} lists")
        return found


def _no_map(_found: dict[Any, Any]) -> None:
    raise ValueError("a message has a map, and no call of CARLA has one")


class RpcServer(Connections):
    """Serves every connection to one listening socket.

    ``answer(method, args)`` returns the reply's result; it may raise only ``DeferredReply``. ``args`` comes without the
    call's metadata (protocol, section 2). ``on_leave(channel)`` is called when a client's connection has ended, for
    whatever reason.
    """

    def __init__(
        self, listener: socket.socket, selector: selectors.BaseSelector, answer: Answer, on_leave: Leave
    ) -> None:
        self._answer = answer
        self._on_leave = on_leave
        self.caller: Channel | None = None
        """The client of the present or last call."""
        self._packer = msgpack.Packer(use_bin_type=True)
        self._incoming: dict[Channel, _Incoming] = {}
        self._deferred: list[tuple[Channel, Any]] = []
        super().__init__(listener, selector)

    def resume(self) -> None:
        """Answer the deferred calls, in the order of their arrival."""
        deferred, self._deferred = self._deferred, []
        for channel, message in deferred:
            self._serve(channel, message)

    def joined(self, channel: Channel) -> None:
        """Begin to read from a client."""
        self._incoming[channel] = _Incoming()

    def left(self, channel: Channel) -> None:
        """Forget a client, and call ``on_leave``."""
        del self._incoming[channel]
        self._on_leave(channel)

    def received(self, channel: Channel, data: bytes) -> None:
        """Answer the complete calls."""
        incoming = self._incoming[channel]
        try:
            incoming.unpacker.feed(data)
            incoming.size += len(data)
            for message in incoming.unpacker:
                incoming.size = incoming.lists = 0
                self._serve(channel, message)
                if channel not in self._incoming:  # closed meanwhile
                    return
        except (ValueError, TypeError, msgpack.UnpackException):
            # Not msgpack-rpc (a browser, a port scan). The stream can't be read any further: close it.
            channel.close()
            return
        if incoming.size > len(data):
            self._bound(channel)

    def _bound(self, channel: Channel) -> None:
        """Close a client with whose unfinished message there are too many bytes or lists."""
        unfinished = self._incoming.values()
        if sum(each.size for each in unfinished) > MOST_BYTES or sum(each.lists for each in unfinished) > MOST_LISTS:
            print(
                f"carla-lite: closed {channel.peer}: with its unfinished message clients have sent more than "
                f"{MOST_BYTES >> 20} MiB, or {MOST_LISTS} lists",
                flush=True,
            )
            channel.close()

    def _serve(self, channel: Channel, message: Any) -> None:
        if channel.backlog_bytes > MOST_UNREAD_BYTES:
            print(
                f"carla-lite: closed {channel.peer}: it goes on calling and reads no replies "
                f"({channel.backlog_bytes >> 20} MiB)",
                flush=True,
            )
            channel.close()
            return
        self.caller = channel
        try:
            channel.send(self._packer.pack(self._reply(message)))
        except DeferredReply:
            self._deferred.append((channel, message))

    def _reply(self, message: Any) -> list[object]:
        kind, number, method, (_metadata, *args) = message
        if kind != _REQUEST:
            raise ValueError(f"message kind is {kind}, expected a request, {_REQUEST}")
        if not isinstance(number, int) or not isinstance(method, str):
            raise TypeError(f"call {number!r:.20} of {method!r:.60}, expected a number and a name")
        return [_RESPONSE, number, None, self._answer(method, args)]
