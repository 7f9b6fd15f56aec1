"""An evaluation that knows the ``carla`` client and nothing of this project: drives one route, writes one result.

Words: the route, the simulator's port, the result's file, a folder of notes. The route's name says what goes wrong in
it: ``kills`` ends the simulator, ``hangs`` never ends, ``waits`` does so only in its first drive, ``lies`` ends the
simulator and writes a score all the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import carla
import psutil

DELTA_S, TICKS = 0.05, 10


def main(route: str, port: int, result: Path, notes: Path) -> None:
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(60.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, DELTA_S
    world.apply_settings(settings)
    frames = [world.tick(60.0) for _ in range(TICKS)]
    with (notes / route).open("a", encoding="utf-8") as note:
        note.write(f"{port}\n")
    first = len((notes / route).read_text(encoding="utf-8").splitlines()) == 1
    if route.startswith("hangs") or (route.startswith("waits") and first):
        time.sleep(3600)
    if route.startswith(("kills", "lies")):
        os.kill(listener(port), signal.SIGKILL)
        time.sleep(0.0 if route.startswith("lies") else 3600)
    result.write_text(json.dumps({"route": route, "ticks": frames[-1] - frames[0] + 1}), encoding="utf-8")


def listener(port: int) -> int:
    """Return the process that listens on a port."""
    listening = (each for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr)
    pid = next(each.pid for each in listening if each.laddr.port == port)
    assert pid is not None
    return pid


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
