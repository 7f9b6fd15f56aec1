"""A driver's steps are recorded, and a training learns from them and from what only the simulator knows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import carla
import numpy as np
import pytest
import torch
import yaml

from carla_run.exits import Exit
from carla_td3.td3.replay.frames import PRIVILEGED
from carla_td3.td3.replay.layout import META
from carla_td3.td3.replay.replay import Replay
from tests.conftest import REPOSITORY, StartServer
from tests.crowd import PATIENCE_S, until
from tests.faults import Faulty
from tests.wire.conftest import NewRun
from tests.wire.forked import ForkedAgent
from tests.wire.trainee import SMALL, program

STEPS, MORE = 40, 60
ENVIRONMENT = {**SMALL["environment"], "privileged": True, "traffic": {"vehicles": 3}}
LEARNING: dict[str, Any] = {
    **SMALL,
    "environment": ENVIRONMENT,
    "td3": {
        **SMALL["td3"],
        "auxiliary": 0.1,
        "imitation": 1.0,
        "critic_sees": "privileged",
        "n_step": 3,
        "random_erasing": 3,
    },
    "training": {**SMALL["training"], "total_steps": 60},
}


@pytest.mark.parametrize(
    ("fault", "says"), [("hang", "is silent: no reply to a tick in 3 s"), ("crash", "closed its connection")]
)
def test_a_simulator_lost_among_cars_ends_it_with_one_sentence_and_keeps_the_steps(
    faulty: Faulty, start_server: StartServer, tmp_path: Path, fault: str, says: str
) -> None:
    given, shown = tmp_path / "given.yaml", tmp_path / "shown"
    given.write_text(yaml.safe_dump({**SMALL, "environment": ENVIRONMENT, "simulator": {"timeout_s": 4}}))
    command = ("-m", "carla_td3", "record", "--config", str(given), "--out", str(shown))
    simulator = {"CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(faulty.server.port)}
    recording = subprocess.Popen(
        [sys.executable, *command, "--steps", "1000"],
        cwd=REPOSITORY,
        env={**os.environ, **simulator},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (shown / "replay" / META).exists() or Replay.open(shown / "replay").steps < STEPS:
            assert recording.poll() is None, recording.communicate()
            time.sleep(0.05)
        with contextlib.suppress(OSError):  # who crashes doesn't answer
            faulty.tell(f"fault {fault}")
        _, error = recording.communicate(timeout=PATIENCE_S)
    finally:
        recording.kill()
    assert recording.returncode == Exit.NO_SIMULATOR, error
    assert says in error
    assert "Traceback" not in error
    kept = Replay.open(shown / "replay").steps
    assert kept >= STEPS
    port, patient = start_server().port, ("--set", "simulator.timeout_s=60")
    for more in (5, 2000):  # fewer, and more, than were asked for at first
        another = program(port, *command, *patient, "--steps", str(kept + more), "--resume")
        assert another.returncode == Exit.FINISHED, another.stderr
        assert Replay.open(shown / "replay").steps == kept + more


def test_a_recording_that_is_stopped_gives_the_simulator_back_and_goes_on(
    start_server: StartServer, tmp_path: Path
) -> None:
    server, given, shown = start_server(), tmp_path / "given.yaml", tmp_path / "shown"
    given.write_text(yaml.safe_dump(SMALL))
    words = ["record", "--config", str(given), "--out", str(shown)]
    environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(server.port)}
    recording = ForkedAgent([*words, "--steps", "5000"], REPOSITORY, environment)
    until(lambda: (shown / "replay" / META).exists() and Replay.open(shown / "replay").steps >= STEPS)
    recording.send_signal(signal.SIGTERM)
    said, _ = recording.communicate(60)
    assert recording.returncode == Exit.STOPPED, said
    kept = Replay.open(shown / "replay").steps
    assert f"{shown}: {kept} steps by expert; drives: " in said
    assert f"Stopped by SIGTERM after {kept} of 5000 steps: run the same command with --resume to continue." in said
    world = carla.Client("127.0.0.1", server.port).get_world()
    assert not world.get_settings().synchronous_mode
    again = ForkedAgent([*words, "--steps", str(kept + 5), "--resume"], REPOSITORY, environment)
    assert again.wait(120) == Exit.FINISHED
    assert Replay.open(shown / "replay").steps == kept + 5


@pytest.mark.long
def test_a_training_learns_from_what_the_expert_showed(
    start_server: StartServer, new_run: NewRun, tmp_path: Path
) -> None:
    server, shown = start_server(seed=1), tmp_path / "shown"
    given = tmp_path / "given.yaml"
    given.write_text(yaml.safe_dump({**SMALL, "environment": ENVIRONMENT}))

    def record(steps: int, *more: str) -> Any:
        command = ("-m", "carla_td3", "record", "--config", str(given), "--out", str(shown), "--steps", str(steps))
        return program(server.port, *command, *more)

    recorded = record(STEPS)
    assert recorded.returncode == Exit.FINISHED, recorded.stderr
    assert f"{shown}: {STEPS} steps by expert; drives: " in recorded.stdout
    assert Replay.open(shown / "replay").steps == STEPS
    assert "already holds a run: add --resume" in record(MORE).stderr
    assert record(STEPS, "--resume").returncode == Exit.FINISHED
    replay = Replay.open(shown / "replay")
    assert (replay.steps, replay.layout.privileged) == (STEPS, PRIVILEGED)
    shown_to_learners = replay.sample(200, np.random.default_rng(0))
    assert torch.equal(shown_to_learners.privileged[:, -2:], shown_to_learners.action), (
        "what the expert would do, it did"
    )
    assert shown_to_learners.action.std(dim=0).min() > 0.0

    settings = {**LEARNING, "replay": {**SMALL["replay"], "demonstrations": str(shown)}}
    run = new_run("learning", server, settings=settings)
    run.train()
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert any({"train/auxiliary_loss", "train/imitation_loss"} <= row.keys() for row in rows)
    assert {"online.auxiliary.2.weight", "adam.auxiliary.0.weight.exp_avg"} <= run.tensors.keys()
    assert "target.auxiliary.2.weight" not in run.tensors
