"""A run's later starts, told no more than its name, with the real server and the real agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from carla_launcher.act.runtime import Role
from tests.conftest import StartServer
from tests.wire.launched import ENDLESS, Launch, Launched, gone, own_limits
from tests.wire.staged import WIDE, settings, short_of_memory, taken
from tests.wire.trainee import SMALL, Run

STEPS, WARM_UP_STEPS, CHECKPOINT_UPDATES, BATCH = 100_000, 30, 4, WIDE["batch_size"]


def saved(run: Path) -> dict[str, Any]:
    """Return the configuration by which the agent went last."""
    return dict(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")))


def commands(run: Launched) -> dict[str, list[str]]:
    """Return how simulator and agent were started; that a run goes on is no difference."""
    lines = {role.value: psutil.Process(run.state[role.value]["pid"]).cmdline() for role in Role}
    return {role: [word for word in line if word != "--resume"] for role, line in lines.items()}


@pytest.mark.long
def test_a_run_whose_launcher_was_killed_goes_on_as_it_was_asked_for(launch: Launch, tmp_path: Path) -> None:
    """The steps, the warm-up, checkpoints and evaluations, what the simulator is told, who hears of it."""
    heard = tmp_path / "heard"
    limits = own_limits(tmp_path, {"restore.hold_s": 3600})
    own = ("--max-timesteps", str(STEPS), "--seed", "5", "--on-event", f"cat >> {heard}")
    simulator = ("--simulator-arg=--fault", "--simulator-arg", "black:after_ticks=9000000")
    agent = settings(
        td3__batch_size=BATCH,
        td3__network=WIDE["network"],
        training__warmup_steps=WARM_UP_STEPS,
        training__checkpoint_every_steps=CHECKPOINT_UPDATES,
        evaluation__episodes=3,
    )
    words = (*own, *limits, *simulator, *agent, "--eval-freq", "70000")
    run = launch(ENDLESS, *words, environment=short_of_memory(updates=1))
    run.until(lambda: bool(taken(run)))
    run.until_training()
    rung = taken(run)[-1]["values"]["td3.micro_batch"]
    before, asked = commands(run), run.state["options"]
    assert "black:after_ticks=9000000" in before["simulator"]
    ours = run.programs
    run.process.kill()
    gone(ours)
    again = launch(None)
    again.until_training(run.beat["step"] + 20)
    config = saved(again.run)
    assert again.beat["total_steps"] == config["training"]["total_steps"] == STEPS
    assert config["training"]["warmup_steps"] == WARM_UP_STEPS
    assert config["training"]["checkpoint_every_steps"] == CHECKPOINT_UPDATES
    assert (config["evaluation"]["every_steps"], config["evaluation"]["episodes"]) == (70_000, 3)
    assert (config["seed"], again.beat["batch"], again.beat["micro_batch"]) == (5, BATCH, rung)
    assert (commands(again), again.state["options"]) == (before, asked)
    again.stop()
    reported = [json.loads(line)["event"] for line in heard.read_text(encoding="utf-8").splitlines()]
    assert reported.count("run_started") == 2

    final = again.beat["step"] + 30
    anew = settings(training__checkpoint_every_steps=9, td3__micro_batch=2)
    third = launch(None, "--resume", "--max-timesteps", str(final), *anew)
    output = third.output()
    assert third.process.returncode == 0, output
    assert f"launcher: max_timesteps: {STEPS} → {final}\n" in output
    assert f"launcher: training.checkpoint_every_steps: {CHECKPOINT_UPDATES} → 9\n" in output
    assert "launcher: td3.micro_batch: not given → 2\n" in output
    assert output.count("→") == 3
    assert (third.beat["step"], third.beat["batch"], third.beat["micro_batch"]) == (final, BATCH, rung), (
        "the rung's wins"
    )
    assert saved(third.run)["training"]["checkpoint_every_steps"] == 9
    assert saved(third.run)["training"]["warmup_steps"] == WARM_UP_STEPS
    assert set(third.events("run_started")[-1]["changed"]) == {
        "max_timesteps",
        "training.checkpoint_every_steps",
        "td3.micro_batch",
    }


@pytest.mark.long
def test_resume_goes_on_with_what_plain_training_or_a_broken_state_left(
    launch: Launch, start_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    plain = Run(tmp_path / "runs" / "test", start_server().port, SMALL, forked=True)
    plain.train()
    before = saved(plain.path)
    refused = launch(None)
    assert "already holds a run: add --resume" in refused.output()
    assert refused.process.returncode == 65
    steps = before["training"]["total_steps"]
    run = launch(None, "--resume", "--max-timesteps", str(steps + 30))
    output = run.output()
    assert run.process.returncode == 0, output
    assert run.beat["step"] == steps + 30
    after = saved(plain.path)
    assert after["training"].pop("total_steps") == before["training"].pop("total_steps") + 30
    assert after == before

    run.run.joinpath("launcher.json").write_text(json.dumps({**run.state, "port": ["2000"], "state": "running"}))
    refused = launch(None)
    output = refused.output()
    assert refused.process.returncode == 65, output
    assert "launcher.json can't be used: `port` is ['2000']" in output
    assert "Traceback" not in output
    last = launch(None, "--resume", "--max-timesteps", str(steps + 60))
    output = last.output()
    assert last.process.returncode == 0, output
    assert "launcher.json can't be used: `port` is ['2000']" in output
    assert last.beat["step"] == steps + 60
