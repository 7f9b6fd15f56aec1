"""Where a run changes its phase: what is saved before, and what finished means."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.wire.conftest import NewRun


def test_what_was_learned_is_saved_before_an_evaluation_starts(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    evaluating = ("--max-timesteps", "60", "--eval-freq", "40", "--num-eval-episodes", "12")
    # The evaluation starts at its step, however many updates are made by then: at least 10.
    learning = ("--set", "training.max_lead_steps=10")
    run.start(
        *evaluating, *learning, "--set", "environment.time_limit.constant_s=20", "--set", "environment.blocked_s=60"
    )
    run.wait(lambda: run.beat["phase"] == "evaluating")
    learned = run.beat["updates"]
    run.kill()
    assert not run.events("evaluated")
    assert run.events("checkpoint")[-1]["cause"] == "before the evaluation"
    run.train(*evaluating, "--set", "environment.time_limit.constant_s=2", "--resume")
    assert run.events("resumed")[0]["updates"] == learned > 0
    assert [event["step"] for event in run.events("evaluated")] == [40, 60]


def remove(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def damage(checkpoint: Path) -> None:
    tensors = checkpoint / "tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 1
    tensors.write_bytes(content)


@pytest.mark.long
@pytest.mark.parametrize("spoil", [remove, damage])
def test_a_run_is_not_finished_without_its_final_checkpoint(
    start_server: StartServer, new_run: NewRun, spoil: Callable[[Path], None]
) -> None:
    run = new_run("run", start_server())
    run.train("--set", "training.max_lead_steps=10")  # else all steps are done before the first checkpoint
    assert "is finished" in run.train("--resume")
    final = run.path / "checkpoints" / (run.path / "checkpoints" / "latest").read_text().strip()
    spoil(final)
    assert "is finished" not in run.train("--resume")
    assert run.events("resumed")[0]["updates"] < 100
    assert (run.beat["step"], run.beat["updates"]) == (120, 100)
    assert "is finished" in run.train("--resume")


def test_a_learner_killed_after_its_final_checkpoint_is_finished_at_the_next_start(
    start_server: StartServer, new_run: NewRun
) -> None:
    run = new_run("run", start_server())
    run.start("--set", "collector.stop_grace_s=30")
    run.wait(lambda: bool(run.beat.get("collector", {}).get("pid")))
    collector = run.beat["collector"]["pid"]
    run.wait(lambda: run.steps == 120)
    os.kill(collector, signal.SIGSTOP)  # it won't give the simulator back, and its learner waits for that
    run.wait(lambda: run.beat["phase"] == "stopping")
    run.kill()
    assert (run.beat["phase"], run.beat["exit_code"]) == ("stopping", None)
    assert "is finished" in run.train("--resume")
    assert (run.beat["phase"], run.beat["exit_code"], run.beat["tick_outstanding_s"]) == ("finished", 0, 0)
    assert (run.beat["step"], run.beat["updates"]) == (120, 100)
    reported = run.events("finished")
    assert "is finished" in run.train("--resume")
    assert run.events("finished") == reported


def test_a_finished_run_that_is_made_longer_learns_begins_anew_is_evaluated_and_filmed_again(
    start_server: StartServer, forked_run: NewRun
) -> None:
    run = forked_run("run", start_server())
    final = ("--set", "training.final_updates=7", "--num-eval-episodes", "1", "--set", "evaluation.video=true")
    options = (*final, "--set", "environment.time_limit.constant_s=3", "--set", "environment.blocked_s=2")
    left = [run.path / name for name in ("evaluation.json", "evaluation.csv", "videos/td3.mp4")]
    run.train(*options, "--max-timesteps", "60")
    first = {path: path.stat().st_ino for path in left}
    assert "is finished" in run.train(*options, "--max-timesteps", "40", "--resume"), "shorter than it is"
    run.train(*options, "--max-timesteps", "100", "--resume")
    assert all(path.stat().st_ino != first[path] for path in left), "written again"
    assert "is finished" in run.train(*options, "--max-timesteps", "100", "--resume")
    assert [event["updates"] for event in run.events("reset")] == [40, 40 + 7 + 40]
    assert [(event["step"], event["final"]) for event in run.events("evaluated")] == [(60, True), (100, True)]
    assert (run.beat["step"], run.beat["updates"]) == (100, 40 + 7 + 40 + 7)
    newest = run.path / "checkpoints" / (run.path / "checkpoints" / "latest").read_text().strip()
    assert json.loads((newest / "manifest.json").read_text())["score"] is not None
