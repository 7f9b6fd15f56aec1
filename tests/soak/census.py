"""Counts the vehicles of a simulator with a client of its own, in a process of its own: ``python census.py PORT``."""

from __future__ import annotations

import os
import sys

import carla


def main() -> None:
    client = carla.Client("127.0.0.1", int(sys.argv[1]), 1)
    client.set_timeout(20.0)
    world = client.get_world()
    world.wait_for_tick(20.0)  # before its first snapshot a client knows of no actor
    print(len(world.get_actors().filter("vehicle.*")), flush=True)
    os._exit(0)  # at interpreter exit the client can abort


if __name__ == "__main__":
    main()
