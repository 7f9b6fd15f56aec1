"""A driver that fails from the n-th look on, for each n of a run with crashes and shortages of memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.observe.observation import Sign
from carla_launcher.observe.pools import Gpu, PoolKind, Reading
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from tests.unit.launcher.hours import end_agent
from tests.unit.launcher.machine import Machine

PROBLEM = "GPU 0 can't be read (NVML: Unknown Error); nvidia-smi may show more."
LOOKS_BLIND = 12
EVERY = 23
"""Of the looks, those at which the driver begins to fail; ``make test-all`` takes each."""


@dataclass
class Blind(Machine):
    """A machine whose driver fails for some looks."""

    fails_at: int = 0
    means: Gpu = Gpu.OK
    looks: int = 0

    def reading(self) -> Reading:
        seen = super().reading()
        self.looks += 1
        if not self.fails_at <= self.looks < self.fails_at + LOOKS_BLIND:
            return seen
        pools = tuple(pool for pool in seen.pools if pool.kind is not PoolKind.VRAM)
        return replace(seen, pools=pools, gpu=self.means, problem=PROBLEM)


def lived(folder: Path, fails_at: int, means: Gpu = Gpu.OK) -> Blind:
    """Return a machine after a run with a crash of each program, a shortage of VRAM and one of RAM."""
    machine = Blind(RunPaths(folder / f"run-{fails_at}"), fails_at=fails_at, means=means)
    harm = {
        60: lambda: end_agent(machine, 134),
        140: lambda: machine.crash_simulator(Sign.CRASH),
        230: lambda: machine.take(PoolKind.VRAM, 500, 600),
        330: lambda: end_agent(machine, 71),
    }
    for second in range(420 + 10 * LOOKS_BLIND):
        harm.get(second, lambda: None)()
        if machine.supervisor.state is not State.STOPPED:
            machine.step()
    return machine


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the number of looks of a run whose driver works, without those that it needs to come back in."""
    machine = lived(tmp_path_factory.mktemp("well"), 0)
    assert machine.supervisor.state in (State.RUNNING, State.PRESSURE)
    assert not machine.events("memory_unreadable")
    return machine.looks - 2 * LOOKS_BLIND


def check(folder: Path, fails_at: int) -> None:
    machine = lived(folder, fails_at)
    assert machine.supervisor.state in (State.RUNNING, State.PRESSURE, State.VERIFYING), machine.said
    unreadable = machine.events("memory_unreadable", "memory_readable")
    assert [row["event"] for row in unreadable] == ["memory_unreadable", "memory_readable"] * (fails_at > 1)
    assert all(row["pools"] == ["vram:0"] for row in unreadable)
    assert len([line for line in machine.said if line.startswith(PROBLEM.rstrip("."))]) == (fails_at > 1)
    assert len(machine.living(Role.AGENT)) == len(machine.living(Role.SIMULATOR)) == 1


def test_a_run_goes_on_while_the_driver_fails(tmp_path: Path, looks: int) -> None:
    for fails_at in range(1, looks, EVERY):
        check(tmp_path, fails_at)


@pytest.mark.long
def test_a_run_goes_on_from_each_look_at_which_it_fails(tmp_path: Path, looks: int) -> None:
    for fails_at in range(1, looks + 1):
        check(tmp_path, fails_at)


def test_a_gpu_that_is_lost_ends_the_run_in_order(tmp_path: Path, looks: int) -> None:
    for fails_at in range(2, looks, EVERY):
        machine = lived(tmp_path, fails_at, Gpu.LOST)
        assert machine.supervisor.state is State.STOPPED
        assert machine.code() == Exit.NO_SIMULATOR
        assert not machine.events("memory_unreadable")
        assert not machine.living(Role.AGENT) + machine.living(Role.SIMULATOR)


def test_a_driver_that_fails_may_have_lost_the_gpu(tmp_path: Path) -> None:
    machine = Blind(RunPaths(tmp_path / "run"), fails_at=5)
    machine.steps_while(lambda: machine.looks < 10)
    machine.gpu = machine.means = Gpu.LOST
    machine.steps_while(lambda: machine.supervisor.state is not State.STOPPED)
    assert machine.code() == Exit.NO_SIMULATOR
    assert len(machine.events("memory_unreadable")) == 1
    assert not machine.events("memory_readable")
