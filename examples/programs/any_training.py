"""Example of a training that uses only the ``carla`` client: it ticks a world and saves a checkpoint every 50 steps.

It does not know the launcher. any-training.yaml, beside this file, describes it to the launcher
(docs/how-to/any-training.md). SIGUSR1 requests a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from types import FrameType

import carla

CHECKPOINT = Path("checkpoint.json")


def main() -> None:
    """Tick the world until ``--steps`` steps are done. With ``--resume``, begin at the last checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=os.environ.get("CARLA_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--step-s", type=float, default=0.0, help="pause after each step, to have time to watch it")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    step = json.loads(CHECKPOINT.read_text())["step"] if given.resume and CHECKPOINT.exists() else 0
    requests: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        requests.append(number)

    signal.signal(signal.SIGUSR1, on_signal)
    client = carla.Client(given.host, given.port)
    client.set_timeout(20.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    batch = bytearray(given.batch_size * 2**20)  # stands for the memory of a batch: 1 MiB for each sample
    while step < given.steps:
        world.tick()
        step += 1
        time.sleep(given.step_s)
        print(f"step {step} of {given.steps}, {len(batch)} bytes", flush=True)
        if requests or step % 50 == 0:
            requests.clear()
            new = CHECKPOINT.with_suffix(".new")  # a kill leaves the old file or the new one
            new.write_text(json.dumps({"step": step}))
            new.replace(CHECKPOINT)
    Path("trained.txt").write_text(f"{step} steps\n")


if __name__ == "__main__":
    main()
