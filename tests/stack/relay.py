"""A socket before the engine's own that can be shut and opened again: an engine that is restarted, to its clients."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

ENGINE = "/var/run/docker.sock"


class Relay:
    """Passes bytes between clients of ``path`` and the engine, until it is shut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []

    def open(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """End all connections; new ones get no answer."""
        assert self._listener is not None
        self.path.unlink()
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(ENGINE)
                self._open += [client, engine]
                for pair in ((client, engine), (engine, client)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
