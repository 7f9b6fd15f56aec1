"""Does a change of the update change a single bit, or need more memory? Digests of the learner's state, and peaks.

A row trains TD3 from a seeded ring on one thread and prints the SHA-256 of its whole state (networks, targets,
optimizers, loss scale, random numbers) and of all metrics, and the most bytes that two updates held in new tensors.
float32 and bfloat16, whole and in micro-batches; with the optimizer and the targets apart, as beside a GPU; float16 for
a tenth as long, because it is slow on a CPU. Digests of two processors or two versions of PyTorch may differ.
``--beside CHECKOUT`` runs another checkout's copy of this program and compares. Run: ``python benchmarks/digests.py
--beside ../before``. Exit code 1: a digest differs, or a peak is higher.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch.profiler import ProfilerActivity, profile

from carla_td3.config import CHANNELS, NetworkConfig, Offload, TD3Config
from carla_td3.memory.recovery import Recovery
from carla_td3.td3.replay.frames import ACTION, SIDE, VECTOR
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.td3 import TD3

FULL = NetworkConfig(channels=CHANNELS["whole"])
BATCH, PART, TRANSITIONS, EPISODE = 64, 20, 2_000, 150
NARROW = NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,))


@dataclass(frozen=True)
class Row:
    """A configuration to train."""

    precision: str
    micro_batch: int | None
    offload: tuple[Offload, ...] = ()
    network: NetworkConfig = FULL

    @property
    def name(self) -> str:
        """Name in the output, by which another checkout's row is matched."""
        part = "whole" if self.micro_batch is None else f"parts of {self.micro_batch}"
        return " ".join([self.precision, part, *self.offload])


ROWS = (
    Row("float32", None),
    Row("float32", PART),
    Row("bfloat16", None),
    Row("bfloat16", PART),
    Row("float32", None, ("optimizer", "targets"), NARROW),
    Row("float32", PART, ("targets",), NARROW),
    Row("float16", PART, ("optimizer",), NARROW),
)


def main(
    updates: Annotated[int, typer.Option(min=1, help="Updates per row.")] = 200,
    beside: Annotated[Path | None, typer.Option(help="Path of another checkout to compare with.")] = None,
) -> None:
    """Print the digests as JSON, those of another checkout beside them."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        replay = _filled(Path(directory) / "replay")
        found = {row.name: _measured(row, replay, updates) for row in ROWS}
    if beside is None:
        print(json.dumps(found, indent=1))
        return
    other = _of_checkout(beside, updates)
    verdicts = dict(_compared(found, other))
    print(json.dumps({name: {**found[name], "verdict": verdict} for name, verdict in verdicts.items()}, indent=1))
    raise typer.Exit(int(any(verdict != "same" for verdict in verdicts.values())))


def _compared(found: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, figures in found.items():
        before = other[name]
        if (figures["state"], figures["metrics"]) != (before["state"], before["metrics"]):
            yield name, "differs"
        elif figures["peak_bytes"] > before["peak_bytes"]:
            yield name, f"peak was {before['peak_bytes']}"
        else:
            yield name, "same"


def _of_checkout(checkout: Path, updates: int) -> dict[str, Any]:
    """Return the output of another checkout's program; its packages come before the installed ones."""
    command = [sys.executable, str(checkout / "benchmarks" / "digests.py"), "--updates", str(updates)]
    path = os.pathsep.join(str(checkout.resolve() / folder) for folder in ("agent", "contract"))
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    printed: dict[str, Any] = json.loads(ended.stdout)
    return printed


def _measured(row: Row, replay: Replay, updates: int) -> dict[str, Any]:
    config = TD3Config(batch_size=BATCH, precision=row.precision, network=row.network)
    rng = np.random.default_rng(0)
    td3 = TD3(config, torch.device("cpu"), 0, row.offload)
    recovery = Recovery(BATCH, row.micro_batch, td3.executor.release, _refuse)
    metrics = hashlib.sha256()
    for _ in range(max(1, updates // 10) if row.precision == "float16" else updates):
        for name, value in td3.update(replay.sample(BATCH, rng), recovery.attempt).items():
            metrics.update(name.encode() + value.numpy().tobytes())
    state = td3.state()
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + state[name].numpy().tobytes())
    peak = _peak_bytes(td3, replay, recovery)
    return {"state": digest.hexdigest(), "metrics": metrics.hexdigest(), "peak_bytes": peak}


def _peak_bytes(td3: TD3, replay: Replay, recovery: Recovery) -> int:
    """Return the most bytes in new tensors during two updates."""
    td3.executor.release()
    batch = replay.sample(BATCH, np.random.default_rng(1))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        td3.update(batch, recovery.attempt)
        td3.update(batch, recovery.attempt)
    assert seen.profiler is not None
    assert seen.profiler.kineto_results is not None
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).max())


def _refuse(shortage: object) -> None:
    raise AssertionError(f"memory ran out, so this row would show another update: {shortage}")


def _filled(directory: Path) -> Replay:
    """Return a full ring with frames that vary and episodes of both ends."""
    replay, rng = Replay.create(directory, TRANSITIONS * 3 // 4), np.random.default_rng(0)
    begun = False
    for step in range(1, TRANSITIONS + 1):
        frame = rng.integers(0, 256, (SIDE, SIDE)).astype(np.uint8)
        vector = rng.normal(size=VECTOR).astype(np.float32)
        if not begun:
            replay.start_episode(frame, vector)
        action = rng.uniform(-1, 1, ACTION).astype(np.float32)
        begun = step % EPISODE != 0
        ends = step // EPISODE % 2 == 0
        replay.append(action, float(rng.normal()), ends and not begun, not ends and not begun, frame, vector)
    return replay


if __name__ == "__main__":
    typer.run(main)
