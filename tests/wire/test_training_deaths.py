"""Trainings whose processes die or hang: what is said of it, what is kept, what goes on. See also ``tests/soak``."""

from __future__ import annotations

import os
import signal

from carla_run.exits import Exit
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S, until
from tests.wire.conftest import NewRun
from tests.wire.trainee import program, running


def test_a_collector_that_hangs_is_replaced(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    run.start(
        *("--max-timesteps", "400", "--set", "environment.traffic.vehicles=2"),
        *("--set", "simulator.timeout_s=1", "--set", "collector.hang_margin_s=0.5"),
    )
    run.wait(lambda: run.steps >= 40)
    pid, steps = run.beat["collector"]["pid"], run.steps
    os.kill(pid, signal.SIGSTOP)
    run.finish()
    assert run.beat["collector_restarts"] >= 1
    assert run.steps == 400 > steps
    assert "hung" in run.events("collector_restarted")[0]["cause"]
    assert not running(pid)


def test_a_killed_agent_resumes_with_every_finished_transition(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    run.start("--max-timesteps", "600")
    run.wait(lambda: run.steps >= 80 and bool(run.events("checkpoint")))
    assert run.process is not None
    collector = run.beat["collector"]["pid"]
    run.process.kill()
    run.process.wait()
    until(lambda: not running(collector))
    kept = run.steps
    saved = run.events("checkpoint")[-1]["updates"]
    run.train("--max-timesteps", "600", "--resume")
    resumed = run.events("resumed")[0]
    assert (resumed["steps"], resumed["updates"]) == (kept, saved)
    assert (run.beat["step"], run.beat["updates"]) == (600, 580)


def test_training_survives_the_death_of_its_simulator(start_server: StartServer, forked_run: NewRun) -> None:
    server = start_server()
    run = forked_run("run", server)
    run.start("--max-timesteps", "500")
    run.wait(lambda: run.steps >= 60)
    server.kill()
    steps = run.steps
    run.wait(lambda: run.beat["phase"] == "waiting_for_simulator")
    start_server(port=server.port)
    run.finish()
    assert run.steps == 500 > steps


def test_a_collector_that_never_gets_a_step_done_ends_the_run(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    process = run.start("--set", "collector.attempts=2", "--set", "collector.start_limit_s=0.01")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.CRASH
    assert "The collector ended 2 times in a row without a finished step" in out
    assert "Traceback" not in out


def test_a_run_is_never_overwritten_and_never_shared(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server())
    process = run.start("--max-timesteps", "3000")
    run.wait(lambda: run.steps >= 30)
    for extra, sentence in ((("--resume",), "is being trained by process"), ((), "already holds a run")):
        second = program(run.port, "-m", "carla_td3", "train", "--run-dir", str(run.path), *extra)
        assert second.returncode == Exit.BAD_CONFIG
        assert sentence in second.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == Exit.STOPPED
