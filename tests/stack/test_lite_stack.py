"""The CPU stack on a real engine: from clean to stopped, gone on with, and refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from carla_run.exits import Exit
from carla_td3 import config
from carla_td3.td3.td3 import TD3
from tests.stack.conftest import StartStack
from tests.stack.stack import CALLER, Stack, docker
from tests.wire.trainee import SMALL

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

LONG: dict[str, Any] = {
    **SMALL,
    "replay": {"capacity": 50_000},
    "training": {**SMALL["training"], "total_steps": 50_000},
}


def trained_modules(stack: Stack) -> set[str]:
    """Return which modules' parameters all differ from those that the run began with."""
    settings = config.load(stack.run.config)
    start = TD3(settings.td3, torch.device("cpu"), settings.seed).online.state_dict()
    now = stack.run.tensors
    same = {name for name, value in start.items() if np.array_equal(value.numpy(), now[f"online.{name}"])}
    return {name.split(".")[0] for name in start} - {name.split(".")[0] for name in same}


def test_from_clean_to_stopped_and_on_again(start_stack: StartStack) -> None:
    stack = start_stack(LONG)
    stack.up()
    assert stack.state("carla")["Health"]["Status"] == "healthy"
    stack.wait(lambda: stack.run.beat.get("updates", 0) > 100 and (stack.run.path / "checkpoints" / "latest").exists())
    assert trained_modules(stack) == {"encoder", "actor", "critic"}

    stack.compose("stop")
    agent, simulator = stack.state("agent"), stack.state("carla")
    assert (agent["Status"], agent["ExitCode"], agent["OOMKilled"]) == ("exited", Exit.STOPPED, False)
    assert (simulator["Status"], simulator["ExitCode"]) == ("exited", 0)
    assert stack.run.beat["phase"] == "stopped"
    latest = stack.run.path / "checkpoints" / (stack.run.path / "checkpoints" / "latest").read_text().strip()
    assert json.loads((latest / "values.json").read_text())["updates"] == stack.run.beat["updates"]
    assert {path.stat().st_uid for path in stack.run.path.rglob("*")} == {CALLER}

    steps, updates = stack.run.steps, stack.run.beat["updates"]
    stack.up()
    stack.wait(lambda: stack.run.beat["updates"] > updates)
    assert [(event["steps"], event["updates"]) for event in stack.run.events("resumed")] == [(steps, updates)]
    stack.compose("down", "--timeout", "60")
    assert stack.left() == []
    assert stack.run.beat["exit_code"] == Exit.STOPPED


@pytest.mark.long
def test_a_finished_run_is_not_started_again(start_stack: StartStack) -> None:
    stack = start_stack(SMALL)
    stack.up()
    stack.wait(lambda: stack.state("agent")["Status"] == "exited")
    ended = stack.state("agent")
    assert (ended["ExitCode"], ended["RestartCount"]) == (Exit.FINISHED, 0)
    assert stack.run.beat["phase"] == "finished"


@pytest.mark.parametrize(
    ("td3", "code", "sentence"),
    [
        ({"bath_size": 64}, Exit.BAD_CONFIG, "unknown key `td3.bath_size`"),
        pytest.param(
            *({"batch_size": 10**8}, Exit.OUT_OF_MEMORY, "the largest td3.batch_size that fits is"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_bad_configuration_or_one_that_can_t_fit_stops_after_a_few_tries_of_one_sentence_each(
    start_stack: StartStack, td3: dict[str, int], code: Exit, sentence: str
) -> None:
    stack = start_stack({"td3": td3}, RESTART="on-failure:2")
    stack.compose("up", "--detach", "--no-build")
    stack.wait(lambda: stack.state("agent")["Status"] == "exited" and stack.state("agent")["RestartCount"] == 2)
    assert stack.state("agent")["ExitCode"] == code
    lines = stack.logs("agent").splitlines()
    assert len(lines) == 3
    assert all(sentence in line for line in lines)
    assert code is not Exit.BAD_CONFIG or len(set(lines)) == 1  # how much is free changes from start to start


def test_the_container_may_do_nothing_that_training_does_not_need(start_stack: StartStack) -> None:
    stack = start_stack(LONG)
    stack.up()
    for service in ("agent", "carla"):
        status = docker("exec", stack.container(service), "cat", "/proc/self/status").stdout
        rights = dict(line.split(":\t", 1) for line in status.splitlines())
        assert rights["Uid"].split() == [str(CALLER)] * 4
        assert int(rights["CapBnd"], 16) == int(rights["CapEff"], 16) == 0
        assert rights["NoNewPrivs"] == "1"
        written = docker("exec", stack.container(service), "touch", "/app/new", check=False)
        assert "Read-only file system" in written.stderr
        assert not docker("exec", stack.container(service), "sh", "-c", "ls /var/run/docker.sock", check=False).stdout


def test_the_agents_image_trains_and_shows_its_commands_under_the_name_of_the_notes(images: None) -> None:
    shown = docker("run", "--rm", "td3-av-system:latest", "python", "scripts/train_td3.py", "--help").stdout
    assert "Train a TD3 driver" in shown
