"""A driver's steps are recorded, and a training learns from them and from what only the simulator knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from agent.td3.replay.frames import PRIVILEGED
from agent.td3.replay.replay import Replay
from contract.exits import Exit
from tests.conftest import StartServer
from tests.wire.conftest import NewRun
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
        "random_shift": 4,
    },
    "training": {**SMALL["training"], "total_steps": 60},
}


@pytest.mark.long
def test_a_training_learns_from_what_the_expert_showed(
    start_server: StartServer, new_run: NewRun, tmp_path: Path
) -> None:
    server, shown = start_server(seed=1), tmp_path / "shown"
    given = tmp_path / "given.yaml"
    given.write_text(yaml.safe_dump({**SMALL, "environment": ENVIRONMENT}))

    def record(steps: int, *more: str) -> Any:
        command = ("-m", "agent", "record", "--config", str(given), "--out", str(shown), "--steps", str(steps))
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
