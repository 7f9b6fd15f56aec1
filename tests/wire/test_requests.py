"""Requests to a training that runs against a real carla-lite: checkpoints, drains, changes and stops."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.requests import Answer, await_answer, send
from carla_td3 import config
from carla_td3.trainer import checkpoint
from carla_td3.trainer.learner import architecture
from tests.conftest import Server, StartServer, port_pair
from tests.crowd import PATIENCE_S
from tests.wire.conftest import Connect, NewRun
from tests.wire.trainee import Run, program, running


def ask(run: Run, kind: str, **values: Any) -> Answer:
    """Return the answer to a request."""
    folder = RunPaths(run.path)
    dotted = {key.replace("__", "."): value for key, value in values.items()}
    return await_answer(folder, send(folder, kind, dotted), look_s=0.01)


def saved_updates(run: Run, name: str | None) -> int:
    """Return the updates in a checkpoint, which is verified."""
    assert name is not None
    widths = architecture(config.load(run.config))
    return int(checkpoint.read(run.path / "checkpoints" / name, widths).values["updates"])


def traces_of_us(connect: Connect, server: Server) -> tuple[bool, list[str]]:
    """Return whether the simulator is in synchronous mode, and the vehicles in it."""
    world = connect(server, synchronous=False).world
    vehicles = [actor.type_id for actor in world.get_actors() if actor.type_id.startswith("vehicle.")]
    return world.get_settings().synchronous_mode, vehicles


def test_a_running_training_does_what_it_is_asked(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    process = run.start(
        *("--max-timesteps", "20000", "--set", "training.warmup_steps=150"),
        *("--set", "training.checkpoint_every_steps=100000"),
    )
    run.wait(lambda: run.steps >= 10)
    early = ask(run, "checkpoint")
    assert early.result == "ok", early
    assert saved_updates(run, early.checkpoint) == early.updates == 0
    run.wait(lambda: run.steps >= 180)
    later = ask(run, "checkpoint")
    assert saved_updates(run, later.checkpoint) == later.updates > 0
    assert later.steps > early.steps
    os.kill(run.beat["collector"]["pid"], signal.SIGKILL)
    assert ask(run, "checkpoint").result == "ok", "though a collector was killed"
    run.wait(lambda: run.beat["collector_restarts"] == 1)
    assert "SIGKILL" in run.events("collector_restarted")[0]["cause"]

    refused = ask(run, "apply", td3__micro_batch=2, td3__batch_size=4)
    assert refused.result == "refused"
    assert "`td3.batch_size` can't change in a running agent" in refused.sentence
    assert run.beat["micro_batch"] == 8
    assert ask(run, "apply", td3__micro_batch=2, training__checkpoint_every_steps=50).result == "ok"
    run.wait(lambda: run.beat["micro_batch"] == 2)
    run.wait(lambda: "interval" in [event["cause"] for event in run.events("checkpoint")])
    assert run.events("applied")[0]["values"] == {"td3.micro_batch": 2, "training.checkpoint_every_steps": 50}

    command = ("-m", "carla_td3", "request", "--run-dir", str(run.path), "--wait")
    refusal = program(run.port, *command, "apply", "--set", "seed=1")
    assert refusal.returncode == Exit.BAD_CONFIG
    assert "`seed` can't change" in refusal.stderr
    done = program(run.port, *command, "stop")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The run has ended. ")
    assert process.wait(PATIENCE_S) == Exit.STOPPED
    (stopped,) = run.events("stopped")
    latest = (run.path / "checkpoints" / "latest").read_text().strip()
    assert saved_updates(run, latest) == stopped["updates"]
    assert stopped["cause"].startswith("request ")


def test_a_drain_gives_the_simulator_back_and_a_resume_finds_another(
    start_server: StartServer, forked_run: NewRun, connect: Connect
) -> None:
    server = start_server()
    run = forked_run("run", server)
    run.start("--max-timesteps", "400", "--set", "environment.traffic.vehicles=2", "--set", "simulator.patience_s=30")
    run.wait(lambda: run.steps >= 60)
    learner, collector = run.beat["pid"], run.beat["collector"]["pid"]
    drained = ask(run, "drain")
    assert drained.result == "ok", drained
    assert not running(collector)
    assert traces_of_us(connect, server) == (False, [])
    assert drained.steps == run.steps
    assert saved_updates(run, drained.checkpoint) == drained.updates
    run.wait(lambda: run.beat["phase"] == "drained")
    server.kill()
    time.sleep(1.2)
    beat = run.beat
    assert (beat["phase"], beat["step"], beat["updates"]) == ("drained", drained.steps, drained.updates)
    assert (beat["collector"], beat["tick_outstanding_s"]) == ({"pid": None, "state": "absent"}, 0.0)
    assert ask(run, "drain").result == "ok", "it is drained: nothing is left to do"
    assert ask(run, "checkpoint").updates == drained.updates, "nothing is learned meanwhile"
    assert ask(run, "resume").result == "ok"
    run.wait(lambda: run.beat["phase"] == "waiting_for_simulator")
    start_server(port=server.port)
    run.finish()
    assert (run.beat["pid"], run.beat["step"], run.beat["updates"]) == (learner, 400, 380)
    assert run.beat["collector_restarts"] == 0


def test_a_run_is_drained_while_it_waits_for_a_simulator(start_server: StartServer, forked_run: NewRun) -> None:
    port = port_pair()
    run = forked_run("run", SimpleNamespace(port=port))
    run.start("--max-timesteps", "60", "--set", "collector.stop_grace_s=3600")  # none without a simulator
    run.wait(lambda: run.beat["phase"] == "waiting_for_simulator")
    assert ask(run, "drain").result == "ok"
    start_server(port=port)
    assert ask(run, "resume").result == "ok"
    run.finish()


@pytest.mark.long
def test_an_evaluation_that_a_drain_breaks_off_is_repeated(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    run.start(
        *("--max-timesteps", "80", "--eval-freq", "40", "--num-eval-episodes", "12"),
        *("--set", "environment.time_limit.constant_s=20", "--set", "environment.blocked_s=60"),
    )
    run.wait(lambda: run.beat.get("collector", {}).get("state") == "evaluating")
    drained = ask(run, "drain")
    assert drained.steps == 40
    assert saved_updates(run, drained.checkpoint) == drained.updates
    assert not run.events("evaluated")
    assert ask(run, "resume").result == "ok"
    run.finish()
    assert [event["step"] for event in run.events("evaluated")] == [40, 80]


def test_a_hung_collector_holds_up_neither_drain_nor_stop(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    process = run.start("--max-timesteps", "2000", "--set", "collector.stop_grace_s=0.5")
    run.wait(lambda: run.steps >= 40)
    collector = run.beat["collector"]["pid"]
    os.kill(collector, signal.SIGSTOP)
    assert ask(run, "drain").result == "ok"
    assert not running(collector)
    stopped = ask(run, "stop")
    assert process.wait(PATIENCE_S) == Exit.STOPPED
    assert stopped.result == "ok"
    assert saved_updates(run, stopped.checkpoint) == stopped.updates == run.events("stopped")[0]["updates"]
