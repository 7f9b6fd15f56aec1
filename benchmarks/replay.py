"""Figures of the replay: bytes, batches a second, their processor time, microseconds to store a step.

Run: ``python benchmarks/replay.py --json``. The ring is filled with noise in a temporary directory; the batches are the
learner's, over all of it, ready for an update. Beside them stands what no batch can do without: as many bytes, copied
from one place of the ring after the other. ``--preset traffic --demonstrations 20000`` has larger frames, erased
rectangles, and a share of each batch from another ring.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from measuring import counted, machine, spread

from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig, load
from carla_td3.layered_yaml import presets
from carla_td3.memory import heap
from carla_td3.run_directory import save_config
from carla_td3.td3.replay.frames import ACTION, VECTOR, FrameStack
from carla_td3.td3.replay.layout import bytes_for, privileged_numbers
from carla_td3.td3.replay.replay import Replay
from carla_td3.trainer.batches import Batches

_EPISODE = 500


def main(
    preset: Annotated[str, typer.Option(help="Agent configuration: a preset.")] = "full",
    transitions: Annotated[int, typer.Option(min=1_000, help="Transitions in the ring.")] = 100_000,
    demonstrations: Annotated[int, typer.Option(min=0, help="Transitions in a second ring, of demonstrations.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in transitions.")] = 256,
    batches: Annotated[int, typer.Option(min=1, help="Batches per turn.")] = 200,
    repeats: Annotated[int, typer.Option(min=1, help="Turns; the result is their median.")] = 7,
    directory: Annotated[Path | None, typer.Option(help="Folder for the temporary rings.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure the replay: bytes, batches a second, microseconds a step."""
    heap.keep()  # as the learner does
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        run, shown = RunPaths(Path(temporary) / "run"), RunPaths(Path(temporary) / "shown")
        source = {"replay.demonstrations": str(shown.path)} if demonstrations else {}
        config = load(presets()[preset], {"td3.batch_size": batch, **source})
        if demonstrations:
            fill(_ring(shown.replay, config, demonstrations), demonstrations)
            save_config(shown, config)
        replay = _ring(run.replay, config, transitions)
        append_us = fill(replay, transitions)
        on_disk = sum(file.stat().st_blocks * 512 for file in run.replay.iterdir())
        figures = _measured(Batches(config), replay, batches, repeats)
    layout = replay.layout
    report = {
        "what": "replay: MiB of all columns, batches a second, ms of processor, microseconds to store a step",
        "preset": preset,
        "transitions": transitions,
        "demonstrations": demonstrations,
        "mib": round(bytes_for(layout.capacity, layout.side, layout.privileged, layout.planes) / 2**20, 1),
        "mib_on_disk": round(on_disk / 2**20, 1),
        "batch": batch,
        **{name: spread(values) for name, values in figures.items()},
        "append_us": round(append_us, 1),
        "machine": machine("torch", "numpy"),
    }
    print(json.dumps(report, indent=2) if as_json else "\n".join(f"{key}: {value}" for key, value in report.items()))


def _ring(folder: Path, config: AgentConfig, transitions: int) -> Replay:
    rows = transitions + -(-transitions // _EPISODE)
    stack = FrameStack.of(config.environment.camera)
    return Replay.create(folder, rows, stack, privileged_numbers(config.environment))


def fill(replay: Replay, transitions: int) -> float:
    """Write that many transitions, in episodes of 500; return microseconds per step."""
    rng, layout = np.random.default_rng(0), replay.layout
    frames = rng.integers(0, 256, (64, layout.planes, layout.side, layout.side), dtype=np.uint8)
    vectors = rng.normal(size=(64, VECTOR)).astype(np.float32)
    privileged = np.zeros(layout.privileged, np.float32) if layout.privileged else None
    action = np.zeros(ACTION, dtype=np.float32)
    start = time.perf_counter()
    for step in range(transitions):
        if step % _EPISODE == 0:
            replay.start_episode(frames[0], vectors[0], privileged)
        index, ends = step % 64, step % _EPISODE == _EPISODE - 1
        replay.append(action, 1.0, False, ends, frames[index], vectors[index], privileged)
    return (time.perf_counter() - start) / transitions * 1e6


def _measured(drawn: Batches, replay: Replay, batches: int, repeats: int) -> dict[str, list[float]]:
    first = drawn.draw(replay, 0).frames.numpy()
    assert first.reshape(len(first), -1).std(axis=1).min() > 0, "a sampled image is blank"
    ring, copy = replay._ring.frames.reshape(-1), np.empty(first.size, np.uint8)
    places = np.arange(batches) * copy.size % (ring.size - copy.size)
    figures: dict[str, list[float]] = {"batches_per_s": [], "ms_a_batch": [], "ms_to_copy_as_much": []}
    for turn in counted(range(repeats), "turn"):
        begun_s, processor_s = time.perf_counter(), time.process_time()
        for update in range(batches):
            drawn.draw(replay, turn * batches + update)
        figures["ms_a_batch"].append((time.process_time() - processor_s) / batches * 1e3)
        figures["batches_per_s"].append(batches / (time.perf_counter() - begun_s))
        processor_s = time.process_time()
        for place in places.tolist():
            copy[:] = ring[place : place + copy.size]
        figures["ms_to_copy_as_much"].append((time.process_time() - processor_s) / batches * 1e3)
    return figures


if __name__ == "__main__":
    typer.run(main)
