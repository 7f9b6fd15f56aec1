"""A driver's steps are recorded, and a training learns from them and from what only the simulator knows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import carla
import numpy as np
import pytest
import torch
import yaml

from carla_run.exits import Exit
from carla_td3.td3.replay.frames import PRIVILEGED
from carla_td3.td3.replay.index import META
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


class Recording:
    """A folder that a driver's steps are recorded into."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder, given = folder / "shown", folder / "given.yaml"
        given.write_text(yaml.safe_dump({**SMALL, **config}))
        self.words = ["record", "--config", str(given), "--out", str(self.folder)]

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        return Replay.open(self.folder / "replay").steps if (self.folder / "replay" / META).exists() else 0

    def start(self, port: int, steps: int, *more: str) -> ForkedAgent:
        environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)}
        return ForkedAgent([*self.words, "--steps", str(steps), *more], REPOSITORY, environment)

    def started(self, port: int, steps: int) -> ForkedAgent:
        """Start it, and wait until it has taken ``STEPS``."""
        recording = self.start(port, steps)
        until(lambda: self.steps >= STEPS or not recording.is_alive())
        return recording


@pytest.mark.parametrize(
    ("fault", "says"), [("hang", "is silent: no reply to a tick in 3 s"), ("crash", "closed its connection")]
)
def test_a_simulator_lost_among_cars_keeps_the_steps(
    faulty: Faulty, start_server: StartServer, tmp_path: Path, fault: str, says: str
) -> None:
    shown = Recording(tmp_path, environment=ENVIRONMENT, simulator={"timeout_s": 4})
    recording = shown.started(faulty.server.port, 1000)
    with contextlib.suppress(OSError):  # who crashes doesn't answer
        faulty.tell(f"fault {fault}")
    said, _ = recording.communicate(PATIENCE_S)
    assert recording.returncode == Exit.NO_SIMULATOR, said
    assert says in said
    assert "Traceback" not in said
    kept = shown.steps
    assert kept >= STEPS
    port, patient = start_server().port, ("--set", "simulator.timeout_s=60")
    for more in (5, 2000):  # fewer, and more, than were asked for at first
        another = shown.start(port, kept + more, *patient, "--resume")
        assert another.wait(PATIENCE_S) == Exit.FINISHED
        assert shown.steps == kept + more


def test_a_stopped_recording_gives_the_simulator_back(start_server: StartServer, tmp_path: Path) -> None:
    server, shown = start_server(), Recording(tmp_path)
    recording = shown.started(server.port, 5000)
    recording.send_signal(signal.SIGTERM)
    said, _ = recording.communicate(60)
    assert recording.returncode == Exit.STOPPED, said
    kept = shown.steps
    assert f"{shown.folder}: {kept} steps by expert; drives: " in said
    assert f"Stopped by SIGTERM after {kept} of 5000 steps: run the same command with --resume to continue." in said
    another = shown.start(server.port, kept + 5, "--resume", "--set", "environment.reward.form=product")
    refused, _ = another.communicate(60)
    assert (another.returncode, shown.steps) == (Exit.BAD_CONFIG, kept)
    assert "was recorded with environment.reward.form = sum, the configuration says product: record into" in refused
    world = carla.Client("127.0.0.1", server.port).get_world()
    assert not world.get_settings().synchronous_mode
    assert shown.start(server.port, kept + 5, "--resume").wait(120) == Exit.FINISHED
    assert shown.steps == kept + 5


@pytest.mark.long
def test_a_training_learns_from_what_is_shown_and_is_recorded(
    start_server: StartServer, new_run: NewRun, tmp_path: Path
) -> None:
    server, shown = start_server(seed=1), Recording(tmp_path, environment=ENVIRONMENT)

    def record(steps: int, *more: str) -> Any:
        return program(server.port, "-m", "carla_td3", *shown.words, "--steps", str(steps), *more)

    recorded = record(STEPS)
    assert recorded.returncode == Exit.FINISHED, recorded.stderr
    assert f"{shown.folder}: {STEPS} steps by expert; drives: " in recorded.stdout
    assert shown.steps == STEPS
    assert "already holds a run: add --resume" in record(MORE).stderr
    assert record(STEPS, "--resume").returncode == Exit.FINISHED
    replay = Replay.open(shown.folder / "replay")
    assert (replay.steps, replay.layout.privileged) == (STEPS, PRIVILEGED)
    shown_to_learners = replay.sample(200, np.random.default_rng(0))
    assert torch.equal(shown_to_learners.privileged[:, -2:], shown_to_learners.action), (
        "what the expert would do, it did"
    )
    assert shown_to_learners.action.std(dim=0).min() > 0.0

    settings = {**LEARNING, "replay": {**SMALL["replay"], "demonstrations": str(shown.folder)}}
    run = new_run("learning", server, settings=settings)
    run.train()
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert any({"train/auxiliary_loss", "train/imitation_loss"} <= row.keys() for row in rows)
    assert {"online.auxiliary.2.weight", "adam.auxiliary.0.weight.exp_avg"} <= run.tensors.keys()
    assert "target.auxiliary.2.weight" not in run.tensors

    reached = tmp_path / "reached"
    words = ("record", "--checkpoint", str(run.path), "--out", str(reached), "--steps", str(STEPS))
    recorded = program(server.port, "-m", "carla_td3", *words)
    assert f"{reached}: {STEPS} steps by td3; drives: " in recorded.stdout, recorded.stderr
    driven = Replay.open(reached / "replay").sample(STEPS, np.random.default_rng(0))
    advised = driven.privileged[:, -2:]
    assert advised.std(dim=0).min() > 0.0
    assert not torch.isclose(advised, driven.action).all(dim=1).any(), "each row has both actions"
