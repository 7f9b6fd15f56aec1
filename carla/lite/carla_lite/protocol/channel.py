"""One non-blocking TCP connection, and the queue of bytes that the kernel hasn't accepted yet.

Owns sockets, their options and their backlog. Knows no message format: bytes come in through a callback, buffers
go out through ``send``. Never blocks: a blocking write deadlocks with the client's global interpreter lock
(protocol, section 3.2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import selectors
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview
Ready = Callable[[int], None]

_CHUNK_BYTES = 1 << 16
_FREE, _TRIES = (20_000, 32_000), 200


def listen(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket.

    Raises:
        OSError: the address is in use or isn't one of this machine.
    """
    listener = socket.create_server((host, port), backlog=128)
    listener.setblocking(False)
    return listener


def listen_pair(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return sockets that listen on a port and on the next one; port 0 chooses two free ports.

    Free ports are chosen below the range for outgoing connections: otherwise a client that retries during a restart of
    the server could get the server's port, and connect to itself.

    Raises:
        OSError: an address is in use or isn't one of this machine.
    """
    tries = iter(random.SystemRandom().sample(range(*_FREE), _TRIES) if port == 0 else [port])
    for first in tries:
        with contextlib.ExitStack() as taken:
            try:
                pair = taken.enter_context(listen(host, first)), taken.enter_context(listen(host, first + 1))
            except OSError as error:
                if port != 0 or error.errno != errno.EADDRINUSE:
                    raise
                continue
            taken.pop_all()
            return pair
    raise OSError(errno.EADDRINUSE, f"no two neighbouring ports of {_FREE[0]} to {_FREE[1]} are free")


def _address_of(sock: socket.socket) -> str:
    try:
        host, port, *_ = sock.getpeername()
    except OSError:  # closed meanwhile
        return "unknown"
    return f"{host}:{port}"


class Channel:
    """A connection registered with a selector; its data there is the callback that takes the event mask.

    ``on_bytes`` gets received bytes; ``on_close`` is called once, when the peer or an error has ended it.
    """

    __slots__ = ("_backlog", "_on_bytes", "_on_close", "_selector", "_sock", "backlog_bytes", "peer")

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        on_bytes: Callable[[Channel, bytes], None],
        on_close: Callable[[Channel], None],
    ) -> None:
        self._sock = sock
        self._selector = selector
        self._on_bytes = on_bytes
        self._on_close = on_close
        self._backlog: deque[memoryview] = deque()
        self.backlog_bytes = 0
        self.peer = _address_of(sock)
        """Host and port of the other end."""
        selector.register(sock, selectors.EVENT_READ, self._ready)

    def send(self, *parts: Buffer) -> None:
        """Send the flat buffers now if the kernel accepts them; copy and queue the rest."""
        if self._sock.fileno() < 0:
            return
        sent = 0
        if not self._backlog:
            try:
                sent = self._sock.sendmsg(parts)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
            else:
                self._queue(bytes(memoryview(part)[sent:]))
                sent = 0

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        if self._sock.fileno() < 0:
            return
        with contextlib.suppress(KeyError):  # a signal that ends the server may have come before the socket was closed
            self._selector.unregister(self._sock)
        self._sock.close()
        self._backlog.clear()
        self.backlog_bytes = 0
        self._on_close(self)

    def _queue(self, rest: bytes) -> None:
        if not self._backlog:
            self._selector.modify(self._sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready)
        self._backlog.append(memoryview(rest))
        self.backlog_bytes += len(rest)

    def _ready(self, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush()
            received = self._sock.recv(_CHUNK_BYTES) if mask & selectors.EVENT_READ else None
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if received == b"":
            self.close()
        elif received:
            self._on_bytes(self, received)

    def _flush(self) -> None:
        while self._backlog:
            head = self._backlog[0]
            sent = self._sock.send(head)
            self.backlog_bytes -= sent
            if sent < len(head):
                self._backlog[0] = head[sent:]
                return
            self._backlog.popleft()
        self._selector.modify(self._sock, selectors.EVENT_READ, self._ready)


class Connections(ABC):
    """A listening socket in a selector's loop, and its open connections.

    Subclasses handle received bytes and keep each connection's state until it has ended.
    """

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        self._listener, self._selector = listener, selector
        self._channels: set[Channel] = set()
        self._spare = os.open(os.devnull, os.O_RDONLY)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    @abstractmethod
    def joined(self, channel: Channel) -> None:
        """Handle a new connection."""

    @abstractmethod
    def received(self, channel: Channel, data: bytes) -> None:
        """Handle received bytes."""

    @abstractmethod
    def left(self, channel: Channel) -> None:
        """Forget a connection, for whatever reason it ended."""

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._selector.unregister(self._listener)
        self._listener.close()
        os.close(self._spare)
        for channel in list(self._channels):
            channel.close()

    def _accept(self, _mask: int) -> None:
        """Accept all waiting connections, with options for small messages that must be sent at once."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:  # none waits, or the peer has closed meanwhile
                if error.errno == errno.EMFILE:
                    self._turn_away()
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(sock, self._selector, self.received, self._ended)
            self._channels.add(channel)
            self.joined(channel)

    def _turn_away(self) -> None:
        """At the limit of open files, close a waiting connection: the loop would be woken for it without end."""
        os.close(self._spare)
        with contextlib.suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def _ended(self, channel: Channel) -> None:
        self._channels.discard(channel)
        self.left(channel)
