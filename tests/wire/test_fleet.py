"""Several collectors of one training, each in a carla-lite of its own: what they share, what befalls one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.td3.replay.replay import Replay
from tests.conftest import Server, StartServer, port_pair
from tests.crowd import PATIENCE_S
from tests.wire.conftest import Connect, NewRun
from tests.wire.test_requests import ask, traces_of_us
from tests.wire.trainee import Run, running


def several(servers: Sequence[Any]) -> tuple[str, ...]:
    """Return the options of a training with a collector in each of these simulators."""
    others = ", ".join(f"'127.0.0.1:{server.port}'" for server in servers[1:])
    return "--set", f"training.collectors={len(servers)}", "--set", f"simulator.others=[{others}]"


def two(start_server: StartServer) -> list[Server]:
    """Start simulators whose ticks are as slow as a card's: else the first collector has driven all before the next."""
    return [start_server(seed=seed, extra=("--tick-ms", "30")) for seed in (0, 1)]


def rings(run: Run) -> list[Replay]:
    return [Replay.open(folder) for folder in RunPaths(run.path).rings().values()]


def total(run: Run) -> int:
    return sum(ring.steps for ring in rings(run))


def assert_whole(ring: Replay) -> None:
    """No finished step is missing in a ring that has not come round, and none is there twice."""
    steps = ring._ring.rows["step"][: ring.rows].astype(np.int64)
    firsts = ring._ring.rows["episode_step"][: ring.rows] == 0
    assert (np.diff(steps) == ~firsts[1:]).all()
    assert steps[-1] == ring.steps


def collectors(run: Run) -> list[dict[str, Any]]:
    return list(run.beat.get("collectors", ()))


def both_drive(run: Run, steps: int = 20) -> None:
    """Wait until each collector has driven a while: how far apart they begin, the machine decides."""
    run.wait(lambda: len(rings(run)) == 2 and min(ring.steps for ring in rings(run)) >= steps)


def test_several_collectors_drive_together_and_the_first_one_evaluates(
    start_server: StartServer, forked_run: NewRun
) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    process = run.start(*several(servers), "--max-timesteps", "50000", "--eval-freq", "80", "--num-eval-episodes", "1")
    both_drive(run, 30)
    run.wait(lambda: len(run.events("evaluated")) >= 2)
    stopped = ask(run, "stop")
    assert process.wait(PATIENCE_S) == Exit.STOPPED
    assert stopped.checkpoint is not None
    first, second = rings(run)
    assert first.steps + second.steps == stopped.steps
    assert first.capacity == second.capacity == 2000
    for ring in (first, second):
        assert_whole(ring)
    actions, others = (ring._ring.rows["action"][1:20] for ring in (first, second))
    assert not np.array_equal(actions, others), "each draws by its own seed"
    assert [event["step"] for event in run.events("evaluated")][:2] == [80, 160]
    assert len(run.events("evaluation_rehearsed")) == 1
    assert sorted(event["collector"] for event in run.events("collector_ready")) == [0, 1]
    listed, beat = collectors(run), run.beat
    assert [each["steps"] for each in listed] == [first.steps, second.steps]
    assert (beat["step"], beat["ticks"]) == (stopped.steps, sum(each["ticks"] for each in listed))
    assert (run.path / "collector-1.log").exists()


@pytest.mark.long
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGSTOP])
def test_a_collector_that_dies_or_hangs_is_replaced_and_the_others_go_on(
    start_server: StartServer, forked_run: NewRun, death: signal.Signals
) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    run.start(
        *several(servers),
        *("--max-timesteps", "600", "--set", "simulator.timeout_s=3", "--set", "collector.hang_margin_s=1"),
    )
    both_drive(run)
    (first, second), kept = collectors(run), rings(run)[1].steps
    os.kill(second["pid"], death)
    run.finish()
    assert not running(second["pid"])
    assert [each["restarts"] for each in collectors(run)] == [0, 1]
    (restarted,) = run.events("collector_restarted")
    assert restarted["collector"] == 1
    assert [event["pid"] for event in run.events("collector_ready") if event["collector"] == 0] == [first["pid"]]
    for ring in rings(run):
        assert_whole(ring)
    assert total(run) == 600
    assert rings(run)[1].steps >= kept


def test_a_simulator_that_dies_holds_up_its_own_collector_alone(start_server: StartServer, forked_run: NewRun) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    run.start(*several(servers), "--max-timesteps", "600", "--set", "simulator.patience_s=2")
    both_drive(run)
    servers[1].kill()
    kept = rings(run)[1].steps
    run.finish()
    for ring in rings(run):
        assert_whole(ring)
    assert total(run) in (600, 601), "a step that was begun before is finished"
    assert kept <= rings(run)[1].steps <= kept + 2
    assert {event["collector"] for event in run.events("collector_restarted")} <= {1}


@pytest.mark.long
def test_a_run_whose_simulators_are_all_gone_ends_with_what_was_learned(
    start_server: StartServer, forked_run: NewRun
) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    process = run.start(*several(servers), "--max-timesteps", "5000", "--set", "simulator.patience_s=1")
    both_drive(run)
    for server in servers:
        server.kill()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.NO_SIMULATOR, out
    assert "No simulator answered at 127.0.0.1:" in out
    failed = run.events("failed")[0]
    assert run.events("checkpoint")[-1]["updates"] > 0
    assert failed["steps"] == total(run)


@pytest.mark.long
def test_a_collector_that_never_finds_a_simulator_rests_while_the_other_drives(
    start_server: StartServer, forked_run: NewRun
) -> None:
    servers = [start_server(), SimpleNamespace(port=port_pair())]
    run = forked_run("run", servers[0])
    process = run.start(
        *several(servers),
        *("--max-timesteps", "50000", "--set", "simulator.patience_s=0.5", "--set", "collector.attempts=2"),
    )
    run.wait(lambda: len(run.events("collector_restarted")) == 2)
    steps = run.steps
    run.wait(lambda: run.steps >= steps + 50 and collectors(run)[1]["state"] == "absent")
    assert [event["exit_code"] for event in run.events("collector_restarted")] == [Exit.NO_SIMULATOR] * 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == Exit.STOPPED


def test_a_killed_learner_loses_no_step_and_goes_on_with_all_or_fewer_collectors(
    start_server: StartServer, forked_run: NewRun
) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    run.start(*several(servers), "--max-timesteps", "400")
    run.wait(lambda: total(run) >= 120 and len(rings(run)) == 2 and len(collectors(run)) == 2)
    pids = [each["pid"] for each in collectors(run)]
    run.kill()
    kept = [ring.steps for ring in rings(run)]
    run.train(*several(servers), "--max-timesteps", "400", "--resume")
    assert not any(map(running, pids))
    assert run.events("resumed")[0]["steps"] >= sum(kept)
    assert (total(run), run.beat["updates"]) == (400, 380)
    for ring, steps in zip(rings(run), kept, strict=True):
        assert_whole(ring)
        assert ring.steps >= steps
    seen = rings(run)[1].steps
    run.train("--resume", "--set", "training.collectors=1", "--max-timesteps", "500")
    first, second = rings(run)
    assert (first.steps, second.steps) == (500 - seen, seen)
    assert (first.capacity, second.capacity) == (4000, 2000)
    assert "collectors" not in run.beat
    (reshaped,) = run.events("replay_reshaped")
    assert (reshaped["capacity_before"], reshaped["capacity"]) == (2000, 4000)


@pytest.mark.long
def test_requests_reach_all_collectors(start_server: StartServer, forked_run: NewRun, connect: Connect) -> None:
    servers = two(start_server)
    run = forked_run("run", servers[0])
    process = run.start(*several(servers), "--max-timesteps", "50000")
    both_drive(run)
    drained = ask(run, "drain")
    assert drained.result == "ok", drained
    assert [traces_of_us(connect, server) for server in servers] == [(False, [])] * 2
    assert drained.steps == total(run)
    assert ask(run, "apply", collector__at_work=1).result == "ok"
    assert ask(run, "resume").result == "ok"
    first, second = (ring.steps for ring in rings(run))
    run.wait(lambda: rings(run)[0].steps >= first + 30)
    assert rings(run)[1].steps == second
    assert [each["state"] for each in collectors(run)][1] == "absent"
    assert ask(run, "apply", collector__at_work=2).result == "ok"
    run.wait(lambda: rings(run)[1].steps >= second + 20)
    assert ask(run, "apply", collector__at_work=1).result == "ok"
    assert traces_of_us(connect, servers[1]) == (False, []), "its simulator can be stopped"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == Exit.STOPPED
    assert run.events("stopped")[0]["steps"] == total(run)
