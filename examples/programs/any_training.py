"""A training that knows the ``carla`` client and nothing of the launcher: it steps a world and saves now and then.

See any-training.yaml beside it, and docs/how-to/any-training.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from types import FrameType

import carla

CHECKPOINT = Path("checkpoint.json")


def main() -> None:
    """Drive so many steps, from the last checkpoint on if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=os.environ.get("CARLA_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    step = json.loads(CHECKPOINT.read_text())["step"] if given.resume and CHECKPOINT.exists() else 0
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGUSR1, ask)
    client = carla.Client(given.host, given.port)
    client.set_timeout(20.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    batch = bytearray(given.batch_size * 2**20)
    while step < given.steps:
        world.tick()
        step += 1
        print(f"step {step} of {given.steps}, {len(batch)} bytes", flush=True)
        if asked or step % 50 == 0:
            asked.clear()
            CHECKPOINT.write_text(json.dumps({"step": step}))
    Path("trained.txt").write_text(f"{step} steps\n")


if __name__ == "__main__":
    main()
