"""What the replay takes and gives: bytes for 100 000 transitions, batches a second, microseconds to store a step.

Run: ``python benchmarks/replay.py --json``. The ring is filled with noise in a temporary directory; the rate is that of
``Replay.sample`` over all of it, the tensors ready for an update.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from agent.td3.frames import ACTION, SIDE, VECTOR
from agent.td3.replay import Replay
from agent.td3.ring import bytes_for

_EPISODE = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batches", type=int, default=200, help="a turn")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=None, help="where the temporary ring lies")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = options.transitions + -(-options.transitions // _EPISODE)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        replay = Replay.create(Path(directory) / "replay", rows)
        append_us = _fill(replay, options.transitions)
        on_disk = sum(file.stat().st_blocks * 512 for file in (Path(directory) / "replay").iterdir())
        rates = _rates(replay, options.batch, options.batches, options.repeats)
    report = {
        "benchmark": "replay",
        "transitions": options.transitions,
        "mib": round(bytes_for(rows) / 2**20, 1),
        "mib_on_disk": round(on_disk / 2**20, 1),
        "batch": options.batch,
        "batches_per_s": {
            "median": round(statistics.median(rates)),
            "min": round(min(rates)),
            "max": round(max(rates)),
        },
        "append_us": round(append_us, 1),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    print(json.dumps(report) if options.json else "\n".join(f"{key}: {value}" for key, value in report.items()))


def _fill(replay: Replay, transitions: int) -> float:
    """Write that many transitions; return microseconds a step."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (64, SIDE, SIDE), dtype=np.uint8)
    vectors = rng.normal(size=(64, VECTOR)).astype(np.float32)
    action = np.zeros(ACTION, dtype=np.float32)
    start = time.perf_counter()
    for step in range(transitions):
        if step % _EPISODE == 0:
            replay.start_episode(frames[0], vectors[0])
        index = step % 64
        replay.append(action, 1.0, False, step % _EPISODE == _EPISODE - 1, frames[index], vectors[index])
    return (time.perf_counter() - start) / transitions * 1e6


def _rates(replay: Replay, batch: int, batches: int, repeats: int) -> list[float]:
    rng = np.random.default_rng(0)
    pixels = replay.sample(batch, rng).frames.numpy().reshape(batch, -1)
    assert pixels.std(axis=1).min() > 0, "a sampled image is blank"
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(batches):
            replay.sample(batch, rng)
        rates.append(batches / (time.perf_counter() - start))
    return rates


if __name__ == "__main__":
    main()
