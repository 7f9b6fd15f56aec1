"""The launcher killed, stopped and told what it may do, in real runs (issue 5's scenarios)."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crowd import PATIENCE_S
from tests.gpu_stub.stub import Figures
from tests.soak.witness import Witness
from tests.wire.launched import ENDLESS, PROCESSES, Launch, Launched, gone, own_limits, processes_of
from tests.wire.staged import CARLA, QUICK, ask, card_of, overrides, press, pressing, settings, status, taken

pytestmark = pytest.mark.long

KILLS = 4


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Figures]:
    """A card of 5745 MiB, as the driver shows one of 6 GB."""
    yield from card_of(tmp_path, 5745)


def go_on(launch: Launch) -> Launched:
    """Launch the run once more; return once its new launcher says that it goes on.

    Its first state still says what the killed one was doing, "running": its own says so after it started the agent.
    """
    run = launch(None)
    run.until(
        lambda: (
            (run.state["pid"], run.state["state"]) == (run.process.pid, "running")
            and run.events("run_started", "agent_starts")[-1]["event"] == "agent_starts"
        )
    )
    return run


def roles(run: Launched) -> list[str]:
    """Return what each process below the launcher that isn't a shim runs."""
    lines = [process.cmdline() for process in run.programs]
    mains = [line for line in lines if "-m" in line and not any("shim" in word for word in line)]
    return [line[line.index("-m") + 1] for line in mains]


def test_13_a_launcher_killed_at_any_instant_goes_on_where_it_was(launch: Launch, tmp_path: Path) -> None:
    """Scenario 13: SIGKILL at seeded instants of a life with a rung change and restarts, ``up`` again each time."""
    rng = random.Random(13)
    more = settings(td3__batch_size=16, replay__capacity=100_000)  # a witness looks at a ring that hasn't come round
    options = (*own_limits(tmp_path, pressing(tmp_path, micro_batch=4)), *more)
    run = launch(ENDLESS, *options)
    run.until_training()
    press(run, tmp_path)
    run.until(lambda: run.beat["micro_batch"] == 4)
    rung, witness = taken(run), Witness(run.run / "replay")
    assert rung[0]["kind"] == "ram"
    for number in range(KILLS):
        if number % 2:
            os.kill(run.state["simulator" if number % 4 == 1 else "agent"]["pid"], signal.SIGKILL)
        time.sleep(rng.uniform(0.0, 3.0))
        ours = processes_of(run)
        run.end()
        gone(ours)
        assert not processes_of(run), "no orphan"
        assert witness.problems() == []
        steps = witness.look()
        run = go_on(launch)
        assert (taken(run), overrides(run)) == (rung, {"td3.micro_batch": 4})
        run.until_training(steps + 1)
        assert len(roles(run)) == len(set(roles(run))), "no duplicate"
    run.until_stepping()
    assert run.beat["micro_batch"] == 4
    ours = processes_of(run)
    run.stop()
    gone(ours)


def test_15_sigterm_has_the_agent_write_a_checkpoint_and_all_are_down_inside_the_grace(launch: Launch) -> None:
    """Scenario 15."""
    run = launch(ENDLESS)
    ours = [*run.until_training(), *processes_of(run)]
    run.until(lambda: int(run.beat.get("updates", 0)) > 1)
    run.stop()
    gone(ours)
    (stopped,) = run.events("agent_stopped")
    assert stopped["exit_code"] == 75
    assert not run.events("agent_killed", "simulator_killed")
    last = run.agent_events("checkpoint")[-1]
    assert last["updates"] == run.beat["updates"]
    assert run.beat["step"] == Witness(run.run / "replay").look()
    assert (run.state["state"], run.state["exit_code"]) == ("stopped", 75)


def carla_on(launch: Launch, folder: Path, card: Figures, *options: str) -> Launched:
    """Launch a run on the card whose simulator passes for CARLA."""
    limits = own_limits(folder, {**QUICK, "simulator.command": CARLA})
    return launch(ENDLESS, "--simulator", "carla", *limits, *options, environment=card.environment)


def test_16_processes_of_which_the_driver_tells_nothing_are_owners_all_the_same(
    launch: Launch, tmp_path: Path, card: Figures
) -> None:
    """Scenario 16: usedGpuMemory None, then the GPU is lost in mid-run: a checkpoint, a reason, no traceback."""
    run = carla_on(launch, tmp_path, card, "--device", "cpu")
    run.until(lambda: bool(run.events("simulator_started")))
    card.unlisted_mib = 4813
    card.hold(run.events("simulator_started")[-1]["pid"], None, "G")
    run.until_training()
    run.until(lambda: bool(vram_of_simulator(run)))
    assert vram_of_simulator(run)[-1] == pytest.approx(4813)
    card.lose()
    output = run.output()
    assert run.process.returncode == 69, output
    assert "the GPU is lost" in run.state["reason"]
    assert "Traceback" not in output
    stopped = run.agent_events("stopped")[-1]
    assert stopped["cause"] == "SIGTERM"
    assert run.agent_events("checkpoint")[-1]["updates"] == stopped["updates"]


def vram_of_simulator(run: Launched) -> list[float]:
    owned = [row["pools"]["vram:0"]["owners"] for row in run.timeline()]
    return [owners["simulator"] for owners in owned if owners.get("simulator")]


def test_16_without_a_driver_the_plan_is_for_the_cpu(launch: Launch, card: Figures) -> None:
    """Scenario 16: the library is there, and no driver is loaded."""
    card.fails = 9  # NVML_ERROR_DRIVER_NOT_LOADED
    card.write()
    run = launch(60, environment=card.environment)
    output = run.output()
    assert run.process.returncode == 0, output
    assert "Traceback" not in output
    assert run.beat["device"] == "cpu"
    assert all(set(row["pools"]) == {"ram", "disk"} for row in run.timeline())
    assert "there is no GPU" in output


def test_policy_agent_cpu_alone_is_obeyed(launch: Launch, tmp_path: Path, card: Figures) -> None:
    """Under pressure from the start: the agent goes to the CPU, CARLA stays where it is."""
    card.hold(os.getppid(), 800, name="desktop")
    run = carla_on(launch, tmp_path, card, "--policy", "agent_cpu")
    run.until_training()
    assert overrides(run) == {"device": "cpu"}
    assert [step["rung"] for step in taken(run)] == ["agent_cpu"]
    assert (run.beat["device"], run.state["quality"], run.state["simulator_restarts"]) == ("cpu", "Low", 0)
    run.stop()


def test_policy_restart_simulator_alone_is_obeyed(launch: Launch, tmp_path: Path, card: Figures) -> None:
    """Under pressure by a CARLA that grew: it is restarted, the agent goes on as it was."""
    run = carla_on(launch, tmp_path, card, "--policy", "restart_simulator", "--device", "cpu")
    run.until(lambda: bool(run.events("simulator_started")))
    pid = run.events("simulator_started")[-1]["pid"]
    card.hold(pid, 4813, "G")
    run.until_training()
    agent = run.beat["pid"]
    run.until_stepping()
    card.hold(pid, 5700, "G")
    run.until(lambda: bool(run.events("simulator_restart")))
    card.release(pid)
    run.until(lambda: len(run.events("simulator_started")) == 2)
    card.hold(run.events("simulator_started")[-1]["pid"], 4813, "G")
    run.until(lambda: run.state["state"] == "running")
    run.until_stepping()
    assert [row["rung"] for row in run.events("rung_taken")] == ["restart_simulator"]
    assert (run.beat["pid"], overrides(run), run.state["simulator_restarts"]) == (agent, {}, 1)
    run.stop()


def test_a_command_of_a_persons_own_hears_of_a_change_of_rung(launch: Launch, tmp_path: Path) -> None:
    """``--on-event``: what it is told is what the journal says."""
    heard = tmp_path / "heard"
    limits = own_limits(tmp_path, pressing(tmp_path, micro_batch=4))
    run = launch(ENDLESS, "--on-event", f"cat >> {heard}", *limits, *settings(td3__batch_size=16))
    run.until_training()
    ask(run, "apply", {"td3.micro_batch": 8})
    run.until(lambda: run.beat["micro_batch"] == 8)
    run.until_stepping(60)  # some looks later
    assert not taken(run), "what a person asks for is no rung"
    press(run, tmp_path)
    run.until(lambda: run.beat["micro_batch"] == 4)
    run.stop()
    reported = [json.loads(line) for line in heard.read_text(encoding="utf-8").splitlines()]
    assert [row for row in reported if row["event"] == "rung_taken"] == run.events("rung_taken")
    assert {"run_started", "run_ended"} <= {row["event"] for row in reported}


def test_two_runs_at_once_dont_touch_each_other_and_down_stops_the_one_that_it_names(launch: Launch) -> None:
    """``down``: of a live run, twice, and of one whose launcher was killed; ``status`` meanwhile."""
    one, other = (launch(ENDLESS, run_name=name) for name in ("one", "other"))
    one.until_training()
    ours = other.until_training()
    assert len(ours) >= PROCESSES
    assert len({run.state["port"] for run in (one, other)}) == 2
    found = status(one)
    assert (found["run"], found["alive"], found["state"]) == ("one", True, "running")
    assert 0 < found["heartbeat"]["step"] <= int(one.beat["step"])
    assert found["heartbeat"]["pid"] == found["agent"]["pid"] == one.state["agent"]["pid"]
    assert found["simulator"]["pid"] == one.state["simulator"]["pid"]
    assert listens(found["port"])

    for sentence in ("is down.", "was down already."):
        reported = one.command("down")
        assert (reported.returncode, sentence in reported.stdout) == (0, True)
    assert one.process.wait(PATIENCE_S) == 75
    assert not processes_of(one)
    assert not listens(found["port"])
    assert status(one)["state"] == "stopped"

    other.until_stepping()
    assert {process.pid for process in ours} <= descendants(other)
    assert not other.events("finding", diagnosis="agent_crash")
    other.process.kill()
    reported = other.command("down")
    assert reported.returncode == 0, reported.stderr
    gone(ours)
    assert status(other)["state"] == "killed"
    assert other.command("down").returncode == 0


def descendants(run: Launched) -> set[int]:
    return {process.pid for process in run.programs}


def listens(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0
