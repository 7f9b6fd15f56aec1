"""``down`` from beside a launcher: it returns when all of the run has ended, and says so if that never happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carla_launcher import config, down
from carla_run.exits import ExitError
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until

LIMITS = config.load()
# A launcher that holds the run's lock together with what it started, and what that does when the launcher is gone.
LAUNCHER = """
import pathlib, signal, subprocess, sys, time
from carla_run.paths import RunPaths
from carla_run.locks import Lock
lock = Lock(RunPaths(pathlib.Path(sys.argv[1])).launcher_lock)
signal.signal(signal.SIGTERM, {on_sigterm})
subprocess.Popen([sys.executable, "-c", {agent!r}, sys.argv[1]], pass_fds=(lock.descriptor,))
time.sleep(600)
"""
AGENT = """
import os, pathlib, sys, time
run = pathlib.Path(sys.argv[1])
launcher = os.getppid()
(run / "ready").touch()
while os.getppid() == launcher:
    time.sleep(0.01)
time.sleep(0.5)
(run / "saved").touch()
"""

Launch = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "night")
    run.logs.mkdir(parents=True)
    return run


@pytest.fixture
def launch(run: RunPaths) -> Iterator[Launch]:
    started: list[subprocess.Popen[bytes]] = []

    def start(on_sigterm: str = "signal.SIG_DFL") -> subprocess.Popen[bytes]:
        program = LAUNCHER.format(on_sigterm=on_sigterm, agent=AGENT)
        started.append(subprocess.Popen([sys.executable, "-c", program, str(run.path)], cwd=REPOSITORY))
        until((run.path / "ready").exists)
        return started[-1]

    yield start
    for launcher in started:
        launcher.kill()
        launcher.wait()


def test_a_launcher_that_lives_is_stopped_and_all_that_it_started_is_waited_for(run: RunPaths, launch: Launch) -> None:
    launcher = launch()
    assert down.run(run, LIMITS) == f"{run.path} is down."
    assert launcher.wait(PATIENCE_S) == -15
    assert (run.path / "saved").exists()
    Lock(run.launcher_lock).release()


def test_what_a_killed_launcher_left_is_waited_for(run: RunPaths, launch: Launch) -> None:
    launcher = launch()
    launcher.kill()
    launcher.wait()
    assert down.run(run, LIMITS) == f"{run.path} is down."
    assert (run.path / "saved").exists()
    assert down.run(run, LIMITS) == f"{run.path} was down already."


def test_a_run_whose_job_waits_in_the_queue_is_not_reported_as_down_for_good(
    run: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho JobState=PENDING Restarts=1\n", encoding="utf-8")
    scontrol.chmod(0o755)
    run.slurm.mkdir()
    (run.slurm / "job.json").write_text('{"job": "7"}', encoding="utf-8")
    with pytest.raises(ExitError, match=r"is down, but its job 7 waits in Slurm's queue and starts it: scancel 7\.$"):
        down.run(run, LIMITS)
    scontrol.write_text("#!/bin/sh\necho JobState=CANCELLED\n", encoding="utf-8")
    assert down.run(run, LIMITS) == f"{run.path} was down already."


def test_a_launcher_that_doesnt_stop_is_given_both_graces_and_then_named(
    run: RunPaths, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "MARGIN_S", 0.5)
    monkeypatch.setattr(down, "LIMIT_S", 0.0)
    short = {"stop_grace_s": 0.25}
    limits = LIMITS.model_copy(
        update={"agent": LIMITS.agent.model_copy(update=short), "simulator": LIMITS.simulator.model_copy(update=short)}
    )
    launcher = launch("signal.SIG_IGN")
    with pytest.raises(ExitError, match="is still in use after 1 s: check `status`"):
        down.run(run, limits)
    assert launcher.poll() is None
