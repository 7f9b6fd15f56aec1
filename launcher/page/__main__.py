"""``python -m launcher.page RUN SOCKET``: serves the page on a socket that listens already, until its input ends.

The first line of its input is the token.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from contract.paths import RunPaths
from launcher.page.server import serve

BESIDE_TRAINING = 10
"""Lower priority: looking must not slow down what is looked at."""


def main(run: RunPaths, descriptor: int) -> None:
    """Serve until the launcher closes its end of the pipe, or dies."""
    os.nice(BESIDE_TRAINING)
    token = sys.stdin.readline().strip()
    asyncio.run(serve(run, socket.socket(fileno=descriptor), token, sys.stdin))


if __name__ == "__main__":
    main(RunPaths(Path(sys.argv[1])), int(sys.argv[2]))
