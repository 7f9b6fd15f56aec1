"""The launcher with the real server and the real agent: started, stopped, killed, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from carla_launcher.observe.gpu_lock import GpuInUseError, lock_gpu
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.gpu_stub.stub import Figures
from tests.wire.launched import ENDLESS, PROCESSES, UNDISTURBED, Launch, Launched, gone, own_limits
from tests.wire.staged import CARLA, card_of


def assert_gone(processes: list[psutil.Process]) -> None:
    assert len(processes) >= PROCESSES
    gone(processes)


def test_a_short_run_ends_with_0_and_leaves_its_files_and_no_process(launch: Launch) -> None:
    launched = launch(200, "--seed", "3", "--max-timesteps", "150", "--", "--set", "td3.batch_size=16")
    processes = launched.until_started()
    output = launched.output()
    assert launched.process.returncode == 0, output
    assert_gone(processes)
    state, agent = launched.read("launcher.json"), launched.read("agent.json")
    assert (state["state"], state["exit_code"], state["options"]["seed"], state["simulator_restarts"]) == (
        "stopped",
        0,
        3,
        0,
    )
    assert (agent["step"], agent["batch"]) == (150, 16)
    assert [row["event"] for row in launched.events()] == UNDISTURBED
    assert "carla-lite: Lite01" in (launched.run / "logs" / "simulator.log").read_text()
    assert "150" in (launched.run / "report.html").read_text(encoding="utf-8")
    assert str(launched.run / "report.html") in output


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_stop_writes_a_checkpoint_and_ends_with_75(launch: Launch, number: signal.Signals) -> None:
    launched = launch(ENDLESS)
    processes = launched.until_training()
    os.killpg(launched.process.pid, number)  # a terminal's Ctrl-C reaches the whole foreground group
    output = launched.output()
    assert launched.process.returncode == 75, output
    assert_gone(processes)
    assert (launched.run / "checkpoints" / "latest").exists()
    assert "--run-name test --resume" in output


def test_a_launcher_that_is_killed_leaves_a_run_to_resume_and_no_process(launch: Launch) -> None:
    launched = launch(ENDLESS)
    processes = launched.until_training()
    launched.process.kill()
    assert_gone(processes)
    assert (launched.run / "checkpoints" / "latest").exists()
    assert launched.read("agent.json")["exit_code"] == 75
    steps = launched.read("agent.json")["step"]
    again = launch(None, "--max-timesteps", str(steps + 20))  # whose launcher died needs no --resume
    output = again.output()
    assert again.process.returncode == 0, output
    assert again.read("agent.json")["step"] == steps + 20


@pytest.mark.long
def test_a_launcher_that_comes_while_a_killed_ones_agent_still_stops_waits_for_it(launch: Launch) -> None:
    launched = launch(ENDLESS)
    launched.until_training()
    agent = psutil.Process(launched.read("launcher.json")["agent"]["pid"])
    agent.suspend()
    launched.process.kill()
    launched.process.wait(PATIENCE_S)
    again = launch(ENDLESS)
    with contextlib.suppress(subprocess.TimeoutExpired):  # far longer than a refusal takes
        again.process.wait(PATIENCE_S)
    assert again.process.poll() is None, again.output()
    agent.resume()
    again.until(lambda: again.state.get("pid") == again.process.pid)
    again.until_stepping()
    again.stop()


def test_a_second_request_ends_everything_at_once(launch: Launch, tmp_path: Path) -> None:
    launched = launch(ENDLESS, *own_limits(tmp_path, {"agent.stop_grace_s": 3600}))
    processes = launched.until_training()
    agent = psutil.Process(launched.read("launcher.json")["agent"]["pid"])
    agent.suspend()  # it can't answer the first one
    launched.process.send_signal(signal.SIGTERM)
    launched.until(lambda: launched.read("launcher.json")["state"] == "draining")
    time.sleep(0.6)  # sooner, it would count as the same request
    launched.process.send_signal(signal.SIGTERM)
    output = launched.output()
    assert launched.process.returncode == 75, output
    assert_gone(processes)


def test_a_simulator_that_is_killed_comes_back_under_the_same_agent(launch: Launch) -> None:
    launched = launch(ENDLESS)
    launched.until_training()
    before = launched.read("launcher.json")
    os.kill(before["simulator"]["pid"], signal.SIGKILL)
    launched.until(lambda: launched.read("launcher.json")["simulator_restarts"] == 1)
    launched.until(lambda: launched.read("launcher.json")["state"] == "running")
    step = launched.read("agent.json")["step"]
    launched.until(lambda: launched.read("agent.json")["step"] > step + 40)
    after = launched.read("launcher.json")
    assert after["simulator"]["pid"] != before["simulator"]["pid"]
    assert (after["agent"]["pid"], after["port"]) == (before["agent"]["pid"], before["port"])
    failed = next(row for row in launched.events() if row["event"] == "finding")
    assert (failed["diagnosis"], failed["exit_code"]) == ("simulator_crash", 137)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.process.wait(PATIENCE_S) == 75


def test_an_agent_that_is_killed_comes_back_and_goes_on_with_every_step(launch: Launch) -> None:
    launched = launch(ENDLESS)
    launched.until_training()
    before = launched.read("launcher.json")
    os.kill(before["agent"]["pid"], signal.SIGKILL)
    step = launched.read("agent.json")["step"]
    launched.until(lambda: launched.read("launcher.json")["agent_restarts"] == 1)
    launched.until(lambda: launched.read("agent.json").get("pid") != before["agent"]["pid"])
    launched.until(lambda: launched.read("agent.json").get("step", 0) > step + 40)
    after = launched.read("launcher.json")
    assert after["simulator"]["pid"] == before["simulator"]["pid"]
    (cause,) = [row["cause"] for row in launched.events() if row["event"] == "agent_restart"]
    assert "signal 9" in cause
    launched.process.send_signal(signal.SIGTERM)
    assert launched.process.wait(PATIENCE_S) == 75


def test_a_simulator_of_somebody_else_is_used_and_left_running(launch: Launch, start_server: StartServer) -> None:
    server = start_server()
    launched = launch(100, "--simulator-host", "127.0.0.1", "--port", str(server.port))
    output = launched.output()
    assert launched.process.returncode == 0, output
    assert server.process.poll() is None
    assert launched.read("launcher.json")["simulator"] is None


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Figures]:
    """A card of 5745 MiB, as the driver shows one of 6 GB."""
    yield from card_of(tmp_path, 5745)


def test_a_card_that_another_launcher_holds_is_refused_before_anything_starts(
    launch: Launch, tmp_path: Path, card: Figures
) -> None:
    carla = ("--simulator", "carla", "--device", "cpu", *own_limits(tmp_path, {"simulator.command": CARLA}))
    held = lock_gpu(card.uuid, "night")
    refused = launch(ENDLESS, *carla, environment=card.environment)
    output = refused.output()
    assert f"GPU {card.uuid} is held by another launcher (process {os.getpid()} of " in output
    assert refused.process.returncode == 65
    assert not refused.events()
    held.release()


def test_a_run_holds_its_card_until_its_last_program_has_gone(launch: Launch, tmp_path: Path, card: Figures) -> None:
    carla = ("--simulator", "carla", "--device", "cpu", *own_limits(tmp_path, {"simulator.command": CARLA}))
    launched = launch(ENDLESS, *carla, environment=card.environment)
    processes = launched.until_training(1)
    with pytest.raises(GpuInUseError, match="run test"):
        lock_gpu(card.uuid, "day")
    agent = psutil.Process(launched.read("launcher.json")["agent"]["pid"])
    agent.suspend()  # so that it outlives its launcher until it is told to go on
    launched.process.kill()
    launched.process.wait(PATIENCE_S)
    with pytest.raises(GpuInUseError, match="run test"):
        lock_gpu(card.uuid, "day")
    agent.resume()
    psutil.wait_procs(processes, timeout=PATIENCE_S)
    lock_gpu(card.uuid, "day").release()


def test_a_run_on_the_cpu_leaves_the_card_to_others(launch: Launch, card: Figures) -> None:
    held = lock_gpu(card.uuid, "night")
    launched = launch(ENDLESS, "--simulator", "carla-lite", "--device", "cpu", environment=card.environment)
    launched.until_started()
    launched.stop()
    held.release()


def test_a_second_launcher_on_the_same_run_is_refused_and_changes_nothing(launch: Launch) -> None:
    first = launch(ENDLESS)
    first.until_training()
    events = (first.run / "launcher-events.jsonl").read_bytes()
    second = launch(None, "--resume")
    assert f"in use by the launcher with process id {first.process.pid}" in second.output()
    assert second.process.returncode == 65
    assert (first.run / "launcher-events.jsonl").read_bytes() == events
    first.process.send_signal(signal.SIGTERM)
    first.output()
    third = launch(None)
    assert "already holds a run: add --resume" in third.output()
    assert third.process.returncode == 65


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--map", "Town99"), 65, "Town99"),
        (("--map", "nowhere.xodr"), 65, "nowhere.xodr"),
        (("--", "--set", "td3.bach_size=3"), 65, "bach_size"),
        (("--", "--no-such-option"), 2, "--no-such-option"),
        (("--config", "nowhere.yaml"), 65, "nowhere.yaml: there is no such file"),
        (("--launcher-config", "nowhere.yaml"), 65, "nowhere.yaml: can't be read"),
        (("--runtime", "podman"), 2, "'process'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_sentence_and_a_code(
    launch: Launch, options: tuple[str, ...], code: int, expected: str
) -> None:
    refused(launch(100, *options), code, expected)


def test_a_run_below_a_file_is_one_sentence_and_a_code(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    refused(launch(100), 65, "can't be written")


def refused(launched: Launched, code: int, expected: str) -> None:
    output = launched.output()
    assert expected in output
    assert launched.process.returncode == code, output
    assert "Traceback" not in output
    assert not (launched.run / "replay").exists()


def test_a_port_in_use_is_said(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        launched = launch(100, "--port", str(port))
        output = launched.output()
    assert launched.process.returncode == 69, output
    assert f"Port {port} is taken by " in output
    assert f"(process {os.getpid()})" in output


def test_an_address_without_a_simulator_is_said(launch: Launch, tmp_path: Path) -> None:
    own = own_limits(tmp_path, {"simulator.running_limit_s": 0.5})
    with socket.create_server(("127.0.0.1", 0)) as dumb:
        port = str(dumb.getsockname()[1])
        launched = launch(100, "--simulator-host", "127.0.0.1", "--port", port, *own)
        output = launched.output()
    assert launched.process.returncode == 69, output
    assert "the port is open, but `version` isn't answered" in output
