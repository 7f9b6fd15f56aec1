"""An idle TCP connection to the simulator's RPC port, whose end says at once that the simulator died.

SIGKILL is seen 1.8 ms later (facts.md, section 5), where a question would have to time out. Owns one socket, never
sends a byte, never waits: it is looked at. Judges nothing.
"""

from __future__ import annotations

import errno
import select
import socket
from typing import Any

from launcher.observe.health import Address

UNDER_WAY = (0, errno.EINPROGRESS, errno.EALREADY, errno.EISCONN)


class IdleConnection:
    """Connects by itself, again after each end; a simulator that isn't there yet is no news.

    A connection counts once it has stood for a whole look: Docker's proxy of a published port takes every connection,
    and ends those at once that nobody behind it takes.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._where: tuple[Any, ...] | None = None
        self._socket: socket.socket | None = None
        self._established = False
        self._stood = False
        self._lost = False

    def look(self) -> bool:
        """Return whether the simulator's end was seen and nothing has taken its place."""
        if self._socket is None:
            self._begin()
        elif not self._established:
            self._finish()
        elif not self._ended():
            self._stood, self._lost = True, False
        else:
            self._lost = self._lost or self._stood
            self.close()
        return self._lost

    def forget(self) -> None:
        """Let go of the connection and of its end: the simulator was stopped, or is another one now."""
        self.close()
        self._lost = False

    def close(self) -> None:
        """Let go of the connection; the next look begins another."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._established, self._stood = None, False, False

    def _begin(self) -> None:
        try:
            if self._where is None:  # once: asking for a name may take long
                found = socket.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
                self._where = found[0]
            family, kind, protocol, _, where = self._where
            self._socket = socket.socket(family, kind, protocol)
        except OSError:
            return
        self._socket.setblocking(False)
        if self._socket.connect_ex(where) in UNDER_WAY:
            self._finish()
        else:
            self.close()

    def _finish(self) -> None:
        """Note that the connection stands, if it does by now; after a refusal the next look begins anew."""
        assert self._socket is not None
        _, writable, _ = select.select([], [self._socket], [], 0)
        if writable and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
        elif writable:
            self._established = True

    def _ended(self) -> bool:
        assert self._socket is not None
        try:
            return not self._socket.recv(65_536)  # nobody asked for anything: what is said is of no interest
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
