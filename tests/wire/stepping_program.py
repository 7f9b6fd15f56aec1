"""A training of somebody else's, as the launcher meets it: it knows the ``carla`` client and nothing of this project.

Steps a world, writes a checkpoint every 10 steps, and goes on from it with ``--resume``. With ``--port 0`` it drives no
simulator.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Drive so many steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    given = parser.parse_args()
    saved = Path("checkpoint.json")
    step = int(json.loads(saved.read_text())) if given.resume and saved.exists() else 0
    tick: Callable[[], object] = _world(given.port) if given.port else lambda: None
    held = bytearray(given.batch * 2**20)
    with Path("driven.txt").open("a") as driven:
        while step < given.steps:
            tick()
            step += 1
            time.sleep(0.05)
            print(f"step {step} with {len(held)}", flush=True)
            driven.write(f"{step}\n")
            driven.flush()
            if step % 10 == 0:
                saved.write_text(json.dumps(step))
    Path("result.txt").write_text(f"{step}\n")


def _world(port: int) -> Callable[[], object]:
    import carla

    client = carla.Client("127.0.0.1", port)
    client.set_timeout(5.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    tick: Callable[[], object] = world.tick
    return tick


if __name__ == "__main__":
    main()
