"""Hours of simulated running: no rung flaps, memory that leaks is seen in time, and nothing deadlocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.observe.pools import PoolKind
from carla_run.paths import RunPaths
from tests.unit.launcher.hours import HOUR_S, Sweep, jump, live
from tests.unit.launcher.machine import Kind, Machine, agent_mib

SEEDS_A_TEST = 2


def settled(tmp_path: Path, seed: int = 0) -> Machine:
    machine = Machine(RunPaths(tmp_path / "run"), seed=seed)
    machine.steps_while(lambda: machine.supervisor.state is not State.RUNNING, at_most=500)
    machine.steps_for(120)
    return machine


def changes(machine: Machine) -> list[str]:
    rows = machine.events("rung_taken", "rung_left", "rung_adopted")
    return [f"{row['event']} {row['rung']}" for row in rows]


def test_free_memory_that_swings_about_the_threshold_for_half_an_hour_changes_one_rung_at_most(tmp_path: Path) -> None:
    machine = settled(tmp_path)
    spare_mib = machine._free(PoolKind.VRAM) - machine.config.memory.reserve_mib[PoolKind.VRAM]
    before = len(changes(machine))
    for second in range(1800):
        machine.foreign_process = {PoolKind.VRAM: spare_mib + (50 if second // 7 % 2 else -50)}
        machine.foreign_process_leaves_s = machine.clock.now_s + 10
        machine.step()
    assert len(changes(machine)) - before <= 1


def test_a_leak_of_20_mib_a_minute_is_ended_a_minute_before_exhaustion_at_an_episodes_end(tmp_path: Path) -> None:
    machine = settled(tmp_path)
    machine.last(Role.SIMULATOR).leak_mib_s = 20 / 60
    machine.steps_while(lambda: not machine.events("simulator_restart"), at_most=20_000)
    (restart,) = machine.events("simulator_restart")
    (drain,) = machine.events("draining")
    assert "20" in restart["cause"]
    exhausted_in_s = [row["exhausted_in_s"] for row in machine.events("finding") if row["diagnosis"] == "leak"]
    free_mib = [row["pools"]["vram:0"]["free"] for row in timeline(machine) if row["time"] <= drain["time"]][-1]
    assert free_mib / (20 / 60) >= 60
    assert exhausted_in_s
    machine.steps_for(300)
    assert machine.supervisor.state is State.RUNNING
    assert len(machine.events("simulator_restart")) == 1


def test_a_further_simulator_that_is_down_is_a_finding_in_the_runs_state(tmp_path: Path) -> None:
    machine = settled(tmp_path, Kind.TWO_SIMULATORS.value)
    next(each for each in machine.living(Role.SIMULATOR) if each.start.number == 1).end(139)
    machine.steps_while(lambda: not machine.journal.state.findings, at_most=100)
    (finding,) = machine.journal.state.findings
    assert finding["owner"] == "simulator 1"
    assert finding["sentence"].startswith("simulator 1: ")
    machine.steps_while(lambda: bool(machine.journal.state.findings), at_most=1000)
    assert machine.events("further_simulator_healthy")[-1]["incident"] == finding["incident"]


def test_a_leak_in_either_of_two_simulators_is_ended_by_one_restart_of_both(tmp_path: Path) -> None:
    machine = settled(tmp_path, Kind.TWO_SIMULATORS.value)
    first, second = machine.living(Role.SIMULATOR)
    second.leak_mib_s = 20 / 60
    machine.steps_while(lambda: not machine.events("simulator_restart"), at_most=20_000)
    machine.steps_for(600)
    assert machine.supervisor.state is State.RUNNING
    assert len(machine.events("simulator_restart")) == 1
    assert [each.start.number for each in machine.living(Role.SIMULATOR)] == [0, 1]
    assert not {first.pid, second.pid} & {each.pid for each in machine.living(Role.SIMULATOR)}


def test_a_second_simulator_s_end_is_no_finding_about_memory(tmp_path: Path) -> None:
    machine = settled(tmp_path, Kind.TWO_SIMULATORS.value)
    machine.living(Role.SIMULATOR)[1].end(139)
    machine.steps_for(1200)
    assert len(machine.living(Role.SIMULATOR)) == 2
    assert {row["diagnosis"] for row in machine.events("finding")} == {"simulator_crash"}


def test_a_leak_is_ended_while_the_second_simulator_can_t_be_started(tmp_path: Path) -> None:
    machine = settled(tmp_path, Kind.TWO_SIMULATORS.value)
    first, second = machine.living(Role.SIMULATOR)
    machine.never_starts = 1
    second.end(139)
    first.leak_mib_s = 300 / 60
    machine.steps_while(lambda: not machine.events("simulator_restart"), at_most=2000)
    machine.steps_for(120)
    assert "leak" in {row["diagnosis"] for row in machine.events("finding")}
    assert len(machine.events("simulator_restart")) == 1
    assert not machine.events("rung_taken")


def timeline(machine: Machine) -> list[dict[str, Any]]:
    from carla_run.readers import read_lines

    return read_lines(machine.run.launcher_memory)


def test_a_foreign_processes_memory_makes_the_run_give_way_and_restore_when_it_leaves(tmp_path: Path) -> None:
    machine = settled(tmp_path)
    machine.foreign_process, machine.foreign_process_leaves_s = {PoolKind.VRAM: 300.0}, machine.clock.now_s + 600
    machine.steps_for(300)
    assert machine.journal.state.taken
    machine.steps_for(6 * HOUR_S)
    assert not machine.journal.state.taken
    assert machine.living(Role.AGENT)[0].overrides.get("td3.micro_batch") is None


def test_a_clock_that_jumps_by_eight_hours_causes_nothing(tmp_path: Path) -> None:
    machine = settled(tmp_path)
    before = len(machine.events())
    jump(machine)
    machine.steps_for(300)
    assert [row["event"] for row in machine.events()[before:]] == []


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(SEEDS_A_TEST, 20, SEEDS_A_TEST))]
)
def test_eight_hours_of_faults_never_deadlock_lose_a_checkpoint_or_change_without_a_cause(
    tmp_path: Path, first: int
) -> None:
    sweep = Sweep()
    for seed in range(first, first + SEEDS_A_TEST):
        live(tmp_path / str(seed), seed, sweep)
    print(sweep.table)
    assert sum(sweep.endings.values()) == SEEDS_A_TEST


def test_the_simulated_agent_takes_less_with_each_value_that_a_rung_sets() -> None:
    assert agent_mib({"td3.micro_batch": 32})[PoolKind.VRAM] < agent_mib({})[PoolKind.VRAM]
    assert agent_mib({"device": "cpu"})[PoolKind.VRAM] == 0
