"""Figures of the replay: bytes for 100 000 transitions, batches per second, microseconds to store a step.

Run: ``python benchmarks/replay.py --json``. The ring is filled with noise in a temporary directory; the rate is that of
``Replay.sample`` over all of it, the tensors ready for an update.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from measuring import counted, machine, spread

from carla_td3.td3.replay.frames import ACTION, SIDE, VECTOR
from carla_td3.td3.replay.layout import bytes_for
from carla_td3.td3.replay.replay import Replay

_EPISODE = 500


def main(
    transitions: Annotated[int, typer.Option(min=1_000, help="Written to the ring.")] = 100_000,
    batch: Annotated[int, typer.Option(min=1, help="Transitions a batch.")] = 256,
    batches: Annotated[int, typer.Option(min=1, help="Batches a turn.")] = 200,
    repeats: Annotated[int, typer.Option(min=1, help="Turns; the figure is their median.")] = 7,
    directory: Annotated[Path | None, typer.Option(help="Where the temporary ring lies.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the replay: bytes, batches a second, microseconds a step."""
    rows = transitions + -(-transitions // _EPISODE)
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        replay = Replay.create(Path(temporary) / "replay", rows)
        append_us = fill(replay, transitions)
        on_disk = sum(file.stat().st_blocks * 512 for file in (Path(temporary) / "replay").iterdir())
        rates = _rates(replay, batch, batches, repeats)
    report = {
        "what": "replay: MiB of all columns, batches a second, microseconds to store a step",
        "transitions": transitions,
        "mib": round(bytes_for(rows) / 2**20, 1),
        "mib_on_disk": round(on_disk / 2**20, 1),
        "batch": batch,
        "batches_per_s": spread(rates),
        "append_us": round(append_us, 1),
        "machine": machine("torch", "numpy"),
    }
    print(json.dumps(report, indent=2) if as_json else "\n".join(f"{key}: {value}" for key, value in report.items()))


def fill(replay: Replay, transitions: int) -> float:
    """Write that many transitions, in episodes of 500; return microseconds per step."""
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
    for _ in counted(range(repeats), "turn"):
        start = time.perf_counter()
        for _ in range(batches):
            replay.sample(batch, rng)
        rates.append(batches / (time.perf_counter() - start))
    return rates


if __name__ == "__main__":
    typer.run(main)
