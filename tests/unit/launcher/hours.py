"""Eight simulated hours of random faults, and what must hold after them; the tests' and the full sweep's one source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.observe.observation import Sign
from carla_launcher.observe.pools import Gpu, PoolKind
from carla_run.events import Failed
from carla_run.paths import RunPaths
from tests.unit.launcher.machine import Machine
from tests.unit.launcher.planned import RUNGS

HOUR_S = 3600.0
FAULT_EVERY_S = 900.0
LONGEST_STALL_S = 1800.0
"""Two hangs in a row, each with its time-outs and its back-off; a longer standstill is a deadlock."""
CHANGES = ("rung_taken", "rung_left", "rung_adopted", "simulator_restart", "agent_restart")


def take_a_little(machine: Machine) -> None:
    """Leave so little less than the reserve that the smallest rung is enough."""
    spare_mib = machine._free(PoolKind.RAM) - machine.config.memory.reserve_mib[PoolKind.RAM]
    machine.take(PoolKind.RAM, spare_mib + 1, spare_mib + 3)


def fill_the_disk(machine: Machine) -> None:
    """End the agent while its ring is sparse; the disk fills after the launcher's look, before the next agent's own."""
    machine.learned.disk_mib = 0.0
    machine.fills_disk_at_start = True
    end_agent(machine, 134)


def never_get_ready(machine: Machine) -> None:
    machine.next_start_sticks = True
    machine.crash_simulator(Sign.CRASH)


def come_back_slowly(machine: Machine) -> None:
    """End the simulator; the next one takes longer than the limit of a start."""
    machine.next_start_is_slow = True
    machine.crash_simulator(Sign.CRASH)


def take_containers_gpu(machine: Machine) -> None:
    """End the agent as `systemctl daemon-reload` ends it in a container; the host keeps the GPU."""
    said = "CUDA error: no CUDA-capable device is detected"
    if machine.living(Role.AGENT):
        machine.agent_events.append(Failed(1, "AcceleratorError", gpu_lost=True, cause=said).row())
    end_agent(machine, 1)


def fail_driver(machine: Machine) -> None:
    machine.driver_fails_until_s = machine.clock.now_s + machine.rng.uniform(5, 900)


def end_agent(machine: Machine, code: int, oom_killed: bool = False) -> None:
    for program in machine.living(Role.AGENT):
        machine.oom_kills += oom_killed
        program.end(code, oom_killed)


def hang_simulator(machine: Machine) -> None:
    machine.simulator_hangs = True
    hang_collector(machine)


def hang_collector(machine: Machine) -> None:
    if machine.collector_hangs_since_s is None:
        machine.collector_hangs_since_s = machine.clock.now_s


def hang_agent(machine: Machine) -> None:
    machine.agent_hangs = True


def leak(machine: Machine, role: Role, low_mib_min: float, high_mib_min: float) -> None:
    if program := machine.one(role):
        program.leak_mib_s = machine.rng.uniform(low_mib_min, high_mib_min) / 60


def jump(machine: Machine) -> None:
    machine.wall_jump_s += 8 * HOUR_S


def lose_gpu(machine: Machine) -> None:
    machine.gpu = Gpu.LOST


def misconfigure(machine: Machine) -> None:
    """End the first simulator, without which a run can't go on, with what no restart mends."""
    machine.crash_simulator(Sign.LAVAPIPE, program=machine.simulator(0))


FAULTS: dict[str, Callable[[Machine], None]] = {
    "simulator crashes": lambda machine: machine.crash_simulator(Sign.CRASH),
    "simulator out of VRAM": lambda machine: machine.crash_simulator(Sign.OUT_OF_VRAM),
    "simulator killed for memory": lambda machine: machine.crash_simulator(oom_killed=True),
    "simulator hangs": hang_simulator,
    "simulator never gets ready": never_get_ready,
    "simulator leaks": lambda machine: leak(machine, Role.SIMULATOR, 5, 100),
    "collector hangs": hang_collector,
    "agent crashes": lambda machine: end_agent(machine, 134),
    "agent killed for memory": lambda machine: end_agent(machine, 137, oom_killed=True),
    "agent hangs": hang_agent,
    "agent leaks": lambda machine: leak(machine, Role.AGENT, 5, 100),
    "foreign process on the card": lambda machine: machine.take(PoolKind.VRAM, 100, 900),
    "foreign process takes the card": lambda machine: machine.take(PoolKind.VRAM, 900, 1500),
    "foreign process in a little RAM": take_a_little,
    "foreign process in RAM": lambda machine: machine.take(PoolKind.RAM, 4000, 8500),
    "foreign process on the disk": lambda machine: machine.take(PoolKind.DISK, 58_000, 59_400),
    "disk full at a start": fill_the_disk,
    "clock jumps": jump,
    "driver fails": fail_driver,
    "container loses the GPU": take_containers_gpu,
    "simulator comes back slowly": come_back_slowly,
}
LAST = {"GPU lost": lose_gpu, "lavapipe": misconfigure}
"""Faults after which a run is over; every tenth seed ends with one."""


@dataclass
class Sweep:
    """States that all seeds together have reached."""

    seeds: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    rungs: Counter[str] = field(default_factory=Counter)
    endings: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Sweep) -> None:
        """Count what another one reached, too."""
        self.seeds += other.seeds
        for mine, theirs in zip(self._counts, other._counts, strict=True):
            mine.update(theirs)

    @property
    def _counts(self) -> tuple[Counter[Any], ...]:
        return self.causes, self.rungs, self.endings, self.faults

    @property
    def table(self) -> str:
        """Return the coverage, a line each."""
        parts: dict[str, Counter[Any]] = {
            "causes": self.causes,
            "rungs": self.rungs,
            "endings": self.endings,
            "faults": self.faults,
        }
        return "\n".join(f"{name}: {dict(sorted(counted.items()))}" for name, counted in parts.items())

    @property
    def missed(self) -> set[str]:
        """Return the rungs and causes that no seed has reached."""
        rungs = {rung.name for rungs in RUNGS.values() for rung in rungs if not rung.ends_run}
        return (rungs - self.rungs.keys()) | ({cause.value for cause in Cause} - self.causes.keys())


def live(folder: Path, seed: int, sweep: Sweep, hours: float = 8.0) -> Machine:
    """Run one seed and check what must hold; the sweep counts what was reached."""
    machine = Machine(RunPaths(folder), seed=seed)
    faults = random.Random(1_000_003 * seed + 17)
    until_s = machine.clock.now_s + hours * HOUR_S
    next_s = machine.clock.now_s + 120
    jump_s = machine.clock.now_s + faults.uniform(0.2, 0.8) * hours * HOUR_S
    while machine.clock.now_s < until_s and machine.supervisor.state is not State.STOPPED:
        if machine.clock.now_s >= next_s:
            name = faults.choice(list(FAULTS))
            FAULTS[name](machine)
            sweep.faults[name] += 1
            next_s = machine.clock.now_s + faults.expovariate(1 / FAULT_EVERY_S)
        if machine.clock.now_s >= jump_s:
            jump(machine)
            jump_s = float("inf")
        machine.step()
    if seed % 10 == 9 and machine.supervisor.state is not State.STOPPED:
        name = sorted(LAST)[seed // 10 % len(LAST)]
        sweep.faults[name] += 1
        machine.steps_while(lambda: machine.simulator(0) is None, at_most=4000)
        LAST[name](machine)
        machine.steps_while(lambda: machine.supervisor.state is not State.STOPPED, at_most=400)
    machine.stop.count = 1
    machine.steps_while(lambda: machine.supervisor.state is not State.STOPPED, at_most=400)
    check(machine, sweep)
    return machine


def check(machine: Machine, sweep: Sweep) -> None:
    """Fail if the run got stuck, changed without a cause, lost what was saved, or left something running."""
    seed = f"seed {machine.seed}"
    for row in machine.events(*CHANGES):
        assert row["cause"], f"{seed}: {row['event']} without a cause: {row}"
    assert machine.longest_stall_s < LONGEST_STALL_S, f"{seed}: nothing moved for {machine.longest_stall_s:.0f} s"
    assert not machine.went_back, f"{seed}: updates went back past a checkpoint"
    assert not machine.living(Role.AGENT), seed
    assert not machine.living(Role.SIMULATOR), seed
    sweep.causes.update(row["diagnosis"] for row in machine.events("finding", "simulator_failed"))
    sweep.causes.update("crash_loop" for _ in machine.events("crash_loop"))
    sweep.rungs.update(row["rung"].partition(" ")[0] for row in machine.events("rung_taken", "rung_adopted"))
    sweep.endings[machine.code()] += 1
    sweep.seeds += 1
