"""The run directory: locking, refusing, saving."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cli import options
from carla_td3.exits import AgentError
from carla_td3.run_directory import is_changed, prepare, read_overrides, save_config, settled_precision
from carla_td3.td3.replay.replay import Replay
from carla_td3.trainer.announcement import changed


def test_a_fresh_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "runs" / "first")
    with prepare(run, resume=False):
        assert run.exchange.is_dir()
        assert not run.holds_a_run()


def test_resuming_what_never_ran_starts_it(tmp_path: Path) -> None:
    with prepare(RunPaths(tmp_path / "new"), resume=True):
        pass


def test_a_directory_with_a_run_is_refused_without_resume(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    with contextlib.closing(Replay.create(run.replay, 1000)) as replay:
        frame, vector = np.zeros((84, 84), np.uint8), np.zeros(53, np.float32)
        replay.start_episode(frame, vector)
        assert not run.holds_a_run()  # nothing is lost: a failed start is no run
        replay.append(np.zeros(2, np.float32), 0.0, False, False, frame, vector)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(AgentError, match="already holds a run: add --resume") as caught:
        prepare(run, resume=False)
    assert caught.value.code is Exit.BAD_CONFIG
    assert sorted(tmp_path.iterdir()) == before
    with prepare(run, resume=True):
        pass


def test_a_second_learner_is_refused_with_the_first_one_named(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    program = (
        "import sys, pathlib; from carla_td3.exits import AgentError; from carla_td3.run_directory import prepare\n"
        "from carla_run.paths import RunPaths\n"
        "try: prepare(RunPaths(pathlib.Path(sys.argv[1])), resume=True)\n"
        "except AgentError as error: print(error)\n"
    )
    with prepare(run, resume=False):
        other = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        )
        said = f"is being trained by process {os.getpid()}: stop that one, or choose another folder."
        assert said in other.stdout
    other = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert other.stdout == ""


def test_a_file_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(AgentError, match="can't be written"):
        prepare(RunPaths(tmp_path / "runs" / "x"), resume=False)


def test_the_saved_configuration_is_one_that_can_be_given_again(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    resolved = config.validate({"td3": {"batch_size": 64}, "seed": 3}, source="test")
    save_config(run, resolved)
    assert config.load(run.config) == resolved
    head = run.config.read_text()
    for word in ("# command: ", "# revision: ", "# torch: ", "# carla: ", "# python: "):
        assert word in head


def test_overrides_are_dotted_keys_however_they_are_written(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    assert read_overrides(run) == {}
    run.overrides.write_text("td3:\n  batch_size: 32\ntraining.learner_threads: 1\ndevice: cpu\n")
    assert read_overrides(run) == {"td3.batch_size": 32, "training.learner_threads": 1, "device": "cpu"}


@pytest.mark.parametrize("text", ["- 1\n", "a: [\n"])
def test_broken_overrides_are_one_sentence(tmp_path: Path, text: str) -> None:
    run = RunPaths(tmp_path)
    run.overrides.write_text(text)
    with pytest.raises(config.ConfigError, match=r"overrides\.yaml"):
        read_overrides(run)


def test_a_configuration_that_a_disk_changed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunPaths(tmp_path)
    assert not is_changed(run)
    save_config(run, config.AgentConfig())
    assert not is_changed(run)
    options.resolve(None, run, None)
    assert not capsys.readouterr().err
    run.config.write_text(run.config.read_text().replace("seed: 0", "seed: 8"))
    options.resolve(None, run, None)
    assert "config.yaml has other values than the last start wrote" in capsys.readouterr().err
    body = run.config.read_bytes().partition(b"\nseed")[2]
    run.config.write_bytes(b"seed" + body)  # as earlier versions wrote it
    assert not is_changed(run)


@pytest.mark.parametrize("text", ["- 1", "1", "a: 2026-13-45", "&a {x: *a}", "a: [", "[" * 100_000, "\x00"])
def test_a_broken_configuration_of_the_last_start_is_no_change(tmp_path: Path, text: str) -> None:
    run = RunPaths(tmp_path)
    run.config.write_text(text, encoding="utf-8")
    assert changed(run, config.AgentConfig()) == {}
    assert settled_precision(run) is None
