"""A container that lost its GPU while the host has it, as after ``systemctl daemon-reload``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.observe.observation import Ended
from carla_launcher.observe.pools import Gpu
from carla_launcher.show import history
from carla_run import run as reporting
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from tests.unit.launcher.hours import end_agent
from tests.unit.launcher.machine import Machine
from tests.unit.launcher.seen import EXPECTED, LIMITS, driving, seconds, with_agent, with_beat

LOST = "CUDA error: no CUDA-capable device is detected\nCUDA kernel errors might be asynchronously reported"
NO_GPU = "No CUDA GPUs are available"
HOSTS: dict[str, dict[str, Any]] = {"fine": {}, "lost": {"gpu": Gpu.LOST}, "unread": {"pools": ()}}


def failed(folder: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the event with which a program that reports ends by this error of torch's."""
    run = RunPaths(folder / "program")
    run.path.mkdir(exist_ok=True)
    monkeypatch.setenv("CARLA_RUN_DIR", str(run.path))
    with pytest.raises(RuntimeError), reporting.report():
        raise RuntimeError(words)
    return read_lines(run.agent_events)[-1]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(RunPaths(tmp_path / "run"))


def lose(machine: Machine, event: dict[str, object]) -> None:
    machine.steps_while(lambda: machine.supervisor.state is not State.RUNNING, at_most=500)
    machine.agent_events.append(event)
    end_agent(machine, 1)
    machine.step()


def test_a_new_container_has_the_gpu_again(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(machine, failed(tmp_path, LOST, monkeypatch))
    machine.steps_while(lambda: machine.supervisor.state is not State.RUNNING, at_most=500)
    assert [each.start.resume for each in machine.programs if each.role is Role.AGENT] == [False, True]
    assert machine.diary.count("start simulator") == 1
    assert (machine.journal.state.agent_failures, machine.journal.state.taken) == (0, ())
    assert len([line for line in machine.said if "systemctl daemon-reload" in line]) == 1
    assert [each.cause for each in history.examine(machine.run).incidents] == [Cause.CONTAINER_LOST_GPU.value]


def test_losses_in_a_row_end_the_run(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = failed(tmp_path, LOST, monkeypatch)
    budget = machine.config.agent.restarts.budget
    for _ in range(budget + 1):
        lose(machine, event)
        machine.steps_for(60)
    assert (machine.code(), machine.diary.count("start agent")) == (Exit.NO_SIMULATOR, budget + 1)
    assert "daemon.json" in machine.journal.state.reason


@pytest.mark.parametrize(
    ("words", "in_container", "phase", "host", "cause"),
    [
        (LOST, True, "updating", "fine", Cause.CONTAINER_LOST_GPU),
        (LOST, True, "starting", "fine", Cause.CONTAINER_LOST_GPU),
        (LOST, False, "updating", "fine", Cause.GPU_LOST),
        (LOST, True, "updating", "lost", Cause.GPU_LOST),
        (LOST, True, "updating", "unread", Cause.GPU_LOST),
        (NO_GPU, True, "updating", "fine", Cause.CONTAINER_LOST_GPU),
        (NO_GPU, True, "starting", "fine", Cause.AGENT_CRASH),  # it never had one
        (NO_GPU, False, "updating", "fine", Cause.AGENT_CRASH),
        ("something else", True, "updating", "fine", Cause.AGENT_CRASH),
    ],
)
def test_whose_gpu_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    in_container: bool,
    phase: str,
    host: str,
    cause: Cause,
) -> None:
    event = failed(tmp_path, words, monkeypatch)
    diagnostician = Diagnostician(LIMITS, replace(EXPECTED, in_container=in_container))
    for time_s in seconds(30):
        seen = with_beat(driving(time_s), phase=phase)
        diagnostician.look(seen)
    memory = replace(seen.memory, **HOSTS[host])
    ended = replace(with_agent(seen, running=False, ended=Ended(1), events=(event,)), time_s=30, memory=memory)
    assert [each.cause for each in diagnostician.look(ended) if each.owner == "agent"] == [cause]
