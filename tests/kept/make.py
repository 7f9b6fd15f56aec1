"""A small run to keep, whose later resume shows that a release still reads it: ``python -m tests.kept.make 0.2``.

Made once for a release, before its tag: a training under the launcher, stopped in order after its first checkpoint.
Text is kept as it is, and what is binary packed; logs, pictures and what is worth nothing after the run are left out.
"""

from __future__ import annotations

import lzma
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.readers import number, read_object
from tests.conftest import REPOSITORY

FOLDER = Path(__file__).parent
STEPS = 25
PACKED = ".xz"
TINY = (
    "environment.camera.width=64",
    "environment.camera.height=64",
    "environment.time_limit.constant_s=3",
    "environment.route.min_length_m=60",
    "environment.route.max_length_m=150",
    "td3.batch_size=8",
    "td3.network.channels=[4,4,4]",
    "td3.network.features=8",
    "td3.network.hidden=[8]",
    "replay.capacity=1000",
    "training.warmup_steps=20",
    "training.final_updates=0",
    "training.learner_threads=1",
    "training.max_lead_steps=8",
    "evaluation.every_steps=0",
    "evaluation.final_episodes=0",
    "evaluation.baselines=false",
    "evaluation.video=false",
)
SLOW = ("--simulator-arg=--tick-ms", "--simulator-arg", "60")  # it is stopped after a few steps
OPTIONS = ("--runtime", "process", "--simulator", "carla-lite", *SLOW, "--device", "cpu", "--config", "quick")
KEPT = (
    *("version.json", "config.yaml", "launcher.json", "launcher-events.jsonl", "agent-events.jsonl", "agent.json"),
    *("checkpoints/latest", "checkpoints/step-*/*", "replay/replay.json", "replay/published", "replay/*.u8"),
    "replay/*.bin",
)


def made(runs: Path) -> RunPaths:
    """Return a run that was stopped after some steps."""
    settings = (word for each in TINY for word in ("--set", each))
    command = ("up", "--runs-dir", str(runs), "--run-name", "kept", *OPTIONS, "--", *settings)
    launcher = subprocess.Popen([sys.executable, str(REPOSITORY / "scripts" / "launch.py"), *command], cwd=REPOSITORY)
    run = RunPaths(runs / "kept")
    while launcher.poll() is None and (number(read_object(run.heartbeat).get("step")) or 0) < STEPS:
        time.sleep(0.05)
    launcher.send_signal(signal.SIGTERM)
    if launcher.wait() != Exit.STOPPED:
        raise SystemExit(f"{run.path}: the launcher ended with {launcher.returncode}, expected {Exit.STOPPED}.")
    return run


def keep(run: RunPaths, kept: Path) -> None:
    """Copy what a resume needs, without the place in which it was made."""
    shutil.rmtree(kept, ignore_errors=True)
    for path in sorted(each for pattern in KEPT for each in run.path.glob(pattern)):
        target = kept / path.relative_to(run.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if path.suffix in (".json", ".yaml", ".jsonl") or path.name == "latest":
            for place, neutral in ((run.path.parent, b"/runs"), (REPOSITORY, b"/checkout")):
                content = content.replace(str(place).encode(), neutral)
            target.write_bytes(content)
        else:
            target.with_name(target.name + PACKED).write_bytes(lzma.compress(content, preset=9))


def unpack(kept: Path, run: Path) -> None:
    """Make the run directory again."""
    for path in (each for each in kept.rglob("*") if each.is_file()):
        target = run / path.relative_to(kept)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == PACKED:
            target.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        else:
            target.write_bytes(path.read_bytes())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        keep(made(Path(folder)), FOLDER / f"run-{sys.argv[1]}")
