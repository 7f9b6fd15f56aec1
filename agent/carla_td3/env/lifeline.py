"""A second, idle TCP connection to the simulator, which shows at once when the simulator dies.

The ``carla`` client notices a dead server only after its whole time-out (protocol section 5.1); this connection sees
the end-of-file milliseconds after a SIGKILL (facts, section 5). Never sends a byte.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

CONNECT_S = 2.0


class Lifeline:
    """Watch ``host:port`` from a daemon thread until it ends or ``close`` is called.

    Args:
        on_lost: called once from the watcher's thread when the simulator ends, not when ``close`` is called.

    Raises:
        OSError: nothing listens there.
    """

    def __init__(self, host: str, port: int, on_lost: Callable[[], None] | None = None) -> None:
        self.lost = False
        """Whether the simulator ended the connection. A plain attribute, because every tick reads it."""
        self._closed = False
        self._on_lost = on_lost
        self._socket = socket.create_connection((host, port), timeout=CONNECT_S)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._thread = threading.Thread(target=self._watch, name="simulator-lifeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=1.0)
        self._socket.close()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(64):
                pass
        self.lost = not self._closed
        if self.lost and self._on_lost is not None:
            self._on_lost()
