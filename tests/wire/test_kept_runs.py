"""A run that an earlier release left resumes, and one that a later release continued is refused untouched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carla_run import formats
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.td3.replay.replay import Replay
from tests.conftest import REPOSITORY, ports
from tests.kept.make import FOLDER, unpack
from tests.wire.launched import Launched
from tests.wire.trainee import program

MORE_STEPS = 30
LAUNCHER = str(REPOSITORY / "scripts" / "launch.py")


@pytest.mark.parametrize("kept", sorted(FOLDER.glob("run-*")), ids=lambda path: path.name)
def test_a_run_of_an_earlier_release_resumes(kept: Path, tmp_path: Path) -> None:
    launched = Launched(tmp_path, "kept")
    unpack(kept, launched.run)
    run, steps = RunPaths(launched.run), Replay.open(launched.run / "replay").steps
    frames = (run.replay / "frames.u8").read_bytes()[: steps * 64 * 64]
    (saved,) = run.checkpoints.glob("step-*")
    updates = json.loads((saved / "values.json").read_text())["updates"]
    launched.up("--resume", "--port", str(ports(3)), "--max-timesteps", str(steps + MORE_STEPS))
    output = launched.output()
    assert launched.process.returncode == Exit.FINISHED, output
    assert "can't be used" not in output  # as launcher.json might, and config.yaml would do instead
    assert launched.state["options"]["simulator_args"] == ["--tick-ms", "60"]
    (resumed,) = launched.agent_events("resumed")
    assert (resumed["steps"], resumed["updates"]) == (steps, updates)
    assert Replay.open(run.replay).steps == steps + MORE_STEPS
    assert (run.replay / "frames.u8").read_bytes().startswith(frames)
    assert launched.beat["updates"] > updates
    assert json.loads(run.version.read_text()) == {"format": formats.RUN.newest, "version": formats.version()}


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "carla_td3", "train", "--resume", "--run-dir"),
        (LAUNCHER, "up", "--resume", "--runtime", "process", "--runs-dir"),
    ],
    ids=["agent", "launcher"],
)
def test_a_run_of_a_later_release_is_refused_untouched(command: tuple[str, ...], tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "kept")
    unpack(sorted(FOLDER.glob("run-*"))[-1], run.path)
    run.version.write_text('{"format": 99, "version": "9.0.0"}')
    before = {path: path.stat().st_mtime_ns for path in sorted(run.path.rglob("*"))}
    where = (str(run.path),) if "carla_td3" in command else (str(tmp_path), "--run-name", "kept")
    ended = program(1, *command, *where)
    assert ended.returncode == Exit.BAD_CONFIG
    assert ended.stderr.count(".\n") == 1
    assert "format 99, written by version 9.0.0" in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in sorted(run.path.rglob("*"))} == before
