"""``python -m carla_launcher.plugins.page RUN SOCKET CONFIG``: serves the page until standard input closes.

The first line of standard input is the token.
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
"""Lower priority (nice), since the page must not slow training down."""


def main(run: RunPaths, descriptor: int, limits: LauncherConfig) -> None:
    """Serve until the launcher closes its end of the pipe, or dies."""
    os.nice(BESIDE_TRAINING)
    token = sys.stdin.readline().strip()
    asyncio.run(serve(run, limits, socket.socket(fileno=descriptor), token, sys.stdin))


if __name__ == "__main__":
    main(RunPaths(Path(sys.argv[1])), int(sys.argv[2]), config.load(Path(sys.argv[3])))
