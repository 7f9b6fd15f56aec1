"""Counts actors of a simulator with a client of its own, in a process of its own: ``python census.py PORT [PATTERN]``.

Without a pattern vehicles; ``*`` counts sensors and the spectator, too.
"""

from __future__ import annotations

import os
import sys

import carla


def main() -> None:
    port, pattern = int(sys.argv[1]), (*sys.argv[2:], "vehicle.*")[0]
    client = carla.Client("127.0.0.1", port, 1)
    client.set_timeout(20.0)
    world = client.get_world()
    world.wait_for_tick(20.0)  # before its first snapshot a client knows of no actor
    print(len(world.get_actors().filter(pattern)), flush=True)
    os._exit(0)  # at interpreter exit the client can abort


if __name__ == "__main__":
    main()
