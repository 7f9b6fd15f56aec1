"""A learner killed while it writes a checkpoint, at instants drawn from a seed: the one before is whole, and used."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from carla_td3 import config
from carla_td3.trainer import checkpoint
from carla_td3.trainer.learner import architecture
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.soak.run_monitor import RunMonitor
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL, Run

pytestmark = pytest.mark.long

STRIKES = 8
LONGEST_S = 0.08
"""Range of delays after a checkpoint's folder has appeared: the duration of writing, longer on a busy machine."""
# The whole network, so that a checkpoint is 29 MiB, and hardly a batch: what takes time is writing.
SETTINGS: dict[str, Any] = {
    **SMALL,
    "td3": {"batch_size": 2},
    "training": {**SMALL["training"], "total_steps": 100_000, "checkpoint_every_steps": 4, "keep_checkpoints": 2},
}


def unfinished(run: Run) -> list[Path]:
    return list((run.path / "checkpoints").glob(".new-*"))


def strike(run: Run, delay_s: float) -> list[int]:
    """Kill a learner so long after it began a checkpoint; return the bytes of each file that it left half-way."""
    assert run.process is not None
    deadline = time.monotonic() + PATIENCE_S
    while not RunMonitor(run).saving:  # without a pause: it lasts for some hundredths of a second
        assert time.monotonic() < deadline
    time.sleep(delay_s)
    run.process.send_signal(signal.SIGSTOP)  # it is killed where it stands, however long looking takes
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    return [path.stat().st_size for folder in unfinished(run) for path in sorted(folder.iterdir())]


def require_whole(folder: Path) -> int:
    """Return a checkpoint's updates after comparing its files' SHA-256 with the manifest, without our own reader."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    assert found == manifest["sha256"]
    assert found.keys() == {"tensors.safetensors", "values.json"}
    return int(json.loads((folder / "values.json").read_bytes())["updates"])


def struck_and_resumed(run: Run, delay_s: float) -> list[int]:
    """Strike once, require that the checkpoint before is whole and gone on from, and return what was half-way."""
    saved, resumed = len(run.events("checkpoint")), len(run.events("resumed"))
    run.wait(lambda: len(run.events("checkpoint")) >= saved + 2)
    steps = run.steps
    left = strike(run, delay_s)
    latest = run.path / "checkpoints" / (run.path / "checkpoints" / "latest").read_text().strip()
    updates = require_whole(latest)
    loaded = checkpoint.load(run.path, architecture(config.validate(SETTINGS, "test")))
    assert (loaded.path, loaded.skipped, loaded.values["updates"]) == (latest, (), updates)
    kept = run.steps
    assert kept >= steps
    run.start("--resume")
    run.wait(lambda: len(run.events("resumed")) > resumed)
    assert [run.events("resumed")[-1][name] for name in ("steps", "updates")] == [kept, updates]
    return left


def test_the_checkpoint_before_is_whole_and_used(start_server: StartServer, new_run: NewRun) -> None:
    chance = random.Random(14)
    delays = [LONGEST_S * (number + chance.random()) / STRIKES for number in range(STRIKES)]
    run = new_run("run", start_server(), settings=SETTINGS)
    run.start()
    left = [struck_and_resumed(run, delay_s) for delay_s in delays]
    half_way = [sizes for sizes in left if sizes]
    assert len(half_way) >= 3, f"hardly a strike met the writing: {left}"
    assert len({tuple(sizes) for sizes in half_way}) >= 2, f"all of them met the same instant: {left}"
