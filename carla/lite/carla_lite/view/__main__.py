"""``python -m carla_lite.view SOCKET HOST PORT SEED``: serves the window on a socket that already listens.

The first line of its input is the token; it ends with its input.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from carla_lite.view.watch import Watch
from carla_lite.view.web import Window

BESIDE_THE_SERVER = 10
"""Lower priority than the server's: viewing must not slow it down."""


def main(descriptor: int, host: str, port: int, seed: int) -> None:
    """Serve until the server closes its end of the pipe, or dies."""
    os.nice(BESIDE_THE_SERVER)
    token = sys.stdin.readline().strip()
    watch = Watch(host, port, seed)
    window = Window(socket.socket(fileno=descriptor), token, watch)
    for work in (watch.run, window.serve_forever):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
