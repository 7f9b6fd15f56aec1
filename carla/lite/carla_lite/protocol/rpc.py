"""msgpack-rpc over TCP: requests are executed and answered in the order of arrival.

Owns the framing and the reply to a malformed caller (the connection is closed). Knows no CARLA method: the creator of
an ``RpcServer`` passes the function that answers.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from typing import Any

import msgpack

from carla_lite.protocol.channel import Channel, Connections

_REQUEST, _RESPONSE = 0, 1

Answer = Callable[[str, list[Any]], object]
Leave = Callable[[Channel], None]


class DeferredReply(Exception):  # noqa: N818 (no error: a signal to the caller)
    """A call gets no answer now; it waits for :meth:`RpcServer.resume`."""


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
        self._unpackers: dict[Channel, msgpack.Unpacker] = {}
        self._deferred: list[tuple[Channel, Any]] = []
        super().__init__(listener, selector)

    def resume(self) -> None:
        """Answer the deferred calls, in the order of their arrival."""
        deferred, self._deferred = self._deferred, []
        for channel, message in deferred:
            self._serve(channel, message)

    def joined(self, channel: Channel) -> None:
        """Begin to read from a client."""
        self._unpackers[channel] = msgpack.Unpacker(raw=False, strict_map_key=False)

    def left(self, channel: Channel) -> None:
        """Forget a client, and call ``on_leave``."""
        del self._unpackers[channel]
        self._on_leave(channel)

    def received(self, channel: Channel, data: bytes) -> None:
        """Answer the complete calls."""
        unpacker = self._unpackers[channel]
        try:
            unpacker.feed(data)
            for message in unpacker:
                self._serve(channel, message)
        except (ValueError, TypeError, msgpack.UnpackException):
            # Not msgpack-rpc (a browser, a port scan). The stream can't be read any further: close it.
            channel.close()

    def _serve(self, channel: Channel, message: Any) -> None:
        self.caller = channel
        try:
            channel.send(self._packer.pack(self._reply(message)))
        except DeferredReply:
            self._deferred.append((channel, message))

    def _reply(self, message: Any) -> list[object]:
        kind, number, method, (_metadata, *args) = message
        if kind != _REQUEST:
            raise ValueError(f"message kind is {kind}, expected a request, {_REQUEST}")
        return [_RESPONSE, number, None, self._answer(method, args)]
