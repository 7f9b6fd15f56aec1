"""A learner that memory runs out in: what it tells, and what it goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.run_directory import prepare
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.learner import Learner
from tests.unit.agent.batches import CPU, MadeUp, random_batch
from tests.unit.agent.failing import Failing
from tests.unit.agent.watched import SIZE, SMALL


def test_the_learner_tells_of_shortages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config.validate({"td3": SMALL.model_dump() | {"micro_batch": 20}}, source="test")
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        learner = Learner(settings, run)
        assert learner.micro_batch == 20
        executor = learner._algorithm.executor
        monkeypatch.setattr(executor, "_gradient", Failing(executor._gradient, range(2), "after"))
        learner.dry_run()
    assert learner.micro_batch == 10
    events = [json.loads(line) for line in run.agent_events.read_text(encoding="utf-8").splitlines()]
    assert [(e["event"], e.get("action"), e["micro_batch"]) for e in events] == [
        ("out_of_memory", "collected", 20),
        ("out_of_memory", "halved", 20),
        ("rehearsed", None, 10),
    ]
    assert events[0]["phase"] == "rehearsed critic"
    written = json.loads((run.memory / events[0]["snapshot"]).read_text(encoding="utf-8"))
    assert written["shortage"]["micro_batch"] == 20


def test_a_learner_that_left_its_device_finishes_the_same_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU the device that is left and the one that is gone to are one; a GPU's turn is in test_card.py."""
    settings = config.validate({"td3": SMALL.model_dump(), "replay": {"capacity": 1000}}, source="test")
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        learner = Learner(settings, run)
        monkeypatch.setattr(learner._recovery, "_last_resort", learner._move_to_cpu)
        monkeypatch.setattr(learner, "_replay", MadeUp(lambda size, _: random_batch(size)))
        undisturbed = TD3(settings.td3, CPU, settings.seed)
        learner.update()
        undisturbed.update(random_batch(SIZE))
        td3 = learner._algorithm
        assert isinstance(td3, TD3)
        failing = Failing(td3.actor_loss, range(8), "before")  # 50, 50, 25, 12, 6, 3, 1, 1
        monkeypatch.setattr(td3, "actor_loss", failing)
        learner.update()
        monkeypatch.undo()
        expected = undisturbed.update(random_batch(SIZE))
    assert learner.micro_batch == SIZE
    reported = [json.loads(line) for line in run.agent_events.read_text(encoding="utf-8").splitlines()]
    assert [event["action"] for event in reported] == ["collected", *["halved"] * 5, "collected", "moved"]
    assert {(event["updates"], event["device"], event["next_device"]) for event in reported} == {(2, "cpu", "cpu")}
    ours, theirs = learner._algorithm.state(), undisturbed.state()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert learner.losses().keys() == expected.keys()
