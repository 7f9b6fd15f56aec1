"""Counts actors of a simulator with a client of its own, in a process of its own: ``python census.py PORT [PATTERN]``.

Without a pattern vehicles; ``*`` counts sensors and the spectator, too.
"""

from __future__ import annotations

import os
import sys
import time

import carla

TICK_S = 240.0


def connected(port: int) -> carla.World:
    """Return the world of a simulator that may still be starting: a client that came too early never connects."""
    until_s = time.monotonic() + TICK_S
    while True:
        client = carla.Client("127.0.0.1", port, 1)
        client.set_timeout(20.0)
        try:
            return client.get_world()
        except RuntimeError:
            if time.monotonic() > until_s:
                raise


def main() -> None:
    port, pattern = int(sys.argv[1]), (*sys.argv[2:], "vehicle.*")[0]
    world = connected(port)
    # Before its first snapshot a client knows of no actor; while another collector evaluates, this world isn't ticked.
    world.wait_for_tick(TICK_S)
    print(len(world.get_actors().filter(pattern)), flush=True)
    os._exit(0)  # at interpreter exit the client can abort


if __name__ == "__main__":
    main()
