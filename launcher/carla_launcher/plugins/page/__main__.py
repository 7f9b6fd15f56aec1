"""``python -m carla_launcher.plugins.page RUN SOCKET CONFIG``: serves the page on a socket until its input ends.

The first line of its input is the token.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from carla_launcher import config
from carla_launcher.config import LauncherConfig
from carla_launcher.plugins.page.server import serve
from carla_run.paths import RunPaths

BESIDE_TRAINING = 10
"""Lower priority: looking must not slow down what is looked at."""


def main(run: RunPaths, descriptor: int, limits: LauncherConfig) -> None:
    """Serve until the launcher closes its end of the pipe, or dies."""
    os.nice(BESIDE_TRAINING)
    token = sys.stdin.readline().strip()
    asyncio.run(serve(run, limits, socket.socket(fileno=descriptor), token, sys.stdin))


if __name__ == "__main__":
    main(RunPaths(Path(sys.argv[1])), int(sys.argv[2]), config.load(Path(sys.argv[3])))
