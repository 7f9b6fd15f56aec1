"""RAM of this machine's processes: real ones that take real memory, and files that aren't memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_launcher import hooks
from carla_launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind
from carla_launcher.observe.ram import NAMED_MIB, SMALL_FOR, OwnerNames, Ram, RunProcesses
from carla_run.memory.processes import held_mib, resident_mib
from tests.conftest import REPOSITORY
from tests.control_group import Group
from tests.memory_hog import Hog, write_file
from tests.unit.kernel import KERNEL_MIB, Kernel, Level

ALLOTTED_MIB = 1500
"""More than pytest's own process takes after thousands of tests; it stands for the launcher."""


def ram(proc: Path = Path("/proc")) -> Ram:
    return Ram(OwnerNames(lambda _id: None, proc), proc)


def host(ours: RunProcesses) -> Pool:
    pool = Ram(OwnerNames(lambda _id: None), allotted_mib=hooks.memory_limit_mib()).pools(ours)[0]
    assert (pool.name, pool.kind) == ("ram", PoolKind.RAM)
    return pool


def owner(pool: Pool, whose: OwnerKind) -> Owner:
    return next(each for each in pool.owners if each.kind is whose)


def test_touched_memory_counts_and_a_mapped_file_does_not(tmp_path: Path) -> None:
    file = write_file(tmp_path / "ring", 100)
    with Hog() as hog:
        held, resident = held_mib(hog.pid), resident_mib(hog.pid)
        assert held is not None
        assert hog.touch(100)
        assert held_mib(hog.pid) == pytest.approx(held + 100, abs=2)
        assert hog.map(file)
        assert held_mib(hog.pid) == pytest.approx(held + 100, abs=2)
        assert resident_mib(hog.pid) == pytest.approx(resident + 200, abs=6), "the kernel did read the file"


def test_what_others_hold_is_no_part_of_an_allotment() -> None:
    with Hog() as learner, Hog() as foreign_process:
        assert learner.touch(50)
        assert foreign_process.touch(100)
        pool = Ram(OwnerNames(), allotted_mib=ALLOTTED_MIB).pools(RunProcesses(agent={learner.pid}))[0]
    assert OwnerKind.FOREIGN not in {each.kind for each in pool.owners}
    assert pool.total.mib == ALLOTTED_MIB
    assert sum(each.held.mib or 0.0 for each in pool.owners) + (pool.free.mib or 0.0) == pytest.approx(
        ALLOTTED_MIB, abs=1
    )


def test_owners_are_sums_of_their_processes() -> None:
    with Hog() as server, Hog() as learner, Hog() as collector, Hog() as foreign_process:
        for hog, mib in ((server, 40), (learner, 80), (collector, 20), (foreign_process, 120)):
            assert hog.touch(mib)
        ours = RunProcesses(simulator=frozenset({server.pid}), agent=frozenset({learner.pid, collector.pid}))
        pool = host(ours)
        assert owner(pool, OwnerKind.AGENT).pids == tuple(sorted((learner.pid, collector.pid)))
        assert owner(pool, OwnerKind.AGENT).held.mib == pytest.approx(100 + 14, abs=10)  # and two interpreters
        assert owner(pool, OwnerKind.SIMULATOR).held.mib == pytest.approx(40 + 7, abs=6)
        found = next(each for each in pool.owners if foreign_process.pid in each.pids)
        assert found.name.startswith(Path(sys.executable).name)
        assert found.held.mib is not None
        assert found.held.mib >= 120
        assert pool.free.mib is not None
        assert pool.total.mib is not None
        assert 0 < pool.free.mib < pool.total.mib


def test_small_foreign_processes_are_left_out() -> None:
    with Hog() as small:
        pool = host(RunProcesses())
        assert owner(pool, OwnerKind.LAUNCHER).pids == (os.getpid(),)
        assert owner(pool, OwnerKind.LAUNCHER).held.mib == pytest.approx(held_mib(os.getpid()), abs=2)
        assert all(small.pid not in each.pids for each in pool.owners)
        small.touch(int(NAMED_MIB) + 1)
        assert any(small.pid in each.pids for each in host(RunProcesses()).owners)


def test_growing_foreign_process_is_seen() -> None:
    reader = ram()
    with Hog() as foreign_process:
        reader.pools(RunProcesses())
        foreign_process.touch(100)
        seen = [
            any(foreign_process.pid in each.pids for each in reader.pools(RunProcesses())[0].owners)
            for _ in range(SMALL_FOR)
        ]
        assert seen[-1]
        with Hog() as another:
            another.touch(100)
            assert any(another.pid in each.pids for each in reader.pools(RunProcesses())[0].owners)
        assert all(another.pid not in each.pids for each in reader.pools(RunProcesses())[0].owners)


def test_a_process_that_becomes_this_run_s_counts_at_once() -> None:
    reader = ram()
    with Hog() as child:
        reader.pools(RunProcesses())
        assert owner(reader.pools(RunProcesses(agent={child.pid}))[0], OwnerKind.AGENT).pids == (child.pid,)


def test_a_foreign_process_that_only_maps_a_big_file_is_none(tmp_path: Path) -> None:
    file = write_file(tmp_path / "ring", 2 * int(NAMED_MIB))
    with Hog() as reader:
        assert reader.map(file)
        assert resident_mib(reader.pid) > NAMED_MIB
        assert all(reader.pid not in each.pids for each in host(RunProcesses()).owners)


def test_processes_that_have_gone_hold_nothing() -> None:
    with Hog() as hog:
        gone = hog.pid
    assert held_mib(gone) is None
    assert resident_mib(gone) == 0
    assert all(each.kind is not OwnerKind.AGENT for each in host(RunProcesses(agent=frozenset({gone}))).owners)


@pytest.fixture
def machine(tmp_path: Path) -> Kernel:
    kernel = Kernel(tmp_path)
    kernel.memory(total=8000, available=4000)
    kernel.process("self", "/launcher")
    return kernel


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (Level(None, 100), (8000, 4000, 0)),  # what the kernel calls available
        (Level(1024, 600, kills=2), (1024, 424 - KERNEL_MIB, 2)),
    ],
)
def test_the_machine_is_the_pool_or_the_launchers_own_group(machine: Kernel, own: Level, expected: object) -> None:
    machine.level("launcher", own)
    machine.process(71, "/launcher")
    (pool,) = ram(machine.proc).pools(RunProcesses(agent={71}))
    assert (pool.name, (pool.total.mib, pool.free.mib, pool.oom_kills)) == ("ram", expected)


def test_container_is_a_pool_before_it_is_there(machine: Kernel) -> None:
    machine.level("launcher", Level(None, 100))
    machine.level("docker/agent", Level(2048, 500, kills=1))
    machine.level("docker/simulator", Level(None, 300))
    for pid, group in ((71, "/docker/agent"), (72, "/docker/agent"), (81, "/docker/simulator")):
        machine.process(pid, group)
    reader = ram(machine.proc)
    reader.expect_containers({OwnerKind.AGENT: 1024})

    def seen(*agent: int) -> list[tuple[object, ...]]:
        pools = reader.pools(RunProcesses(simulator={81}, agent=set(agent)))[1:]
        return [
            (each.name, each.total.mib, each.free.mib, each.oom_kills, [owner.held.mib for owner in each.owners])
            for each in pools
        ]

    there = [("ram:agent", 2048, 1548 - KERNEL_MIB, 1, [500 + KERNEL_MIB])]
    to_come: list[tuple[object, ...]] = [("ram:agent", 1024, 1024, 0, [])]
    assert seen() == to_come
    assert seen(70, 71, 72) == there  # 70 has just ended
    assert seen(70) == to_come  # the next one is as big


def test_without_a_proc_there_is_no_pool_and_no_error(tmp_path: Path) -> None:
    assert ram(tmp_path).pools(RunProcesses()) == ()


def test_slurms_allotment_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hog() as learner:
        assert learner.touch(100)
        ours = RunProcesses(agent=frozenset({learner.pid}))
        monkeypatch.setenv("SLURM_MEM_PER_NODE", str(ALLOTTED_MIB))
        pool = host(ours)
        held = owner(pool, OwnerKind.AGENT).held.mib or 0.0
        launchers = owner(pool, OwnerKind.LAUNCHER).held.mib or 0.0
        assert pool.total.mib == ALLOTTED_MIB
        assert pool.free.mib == pytest.approx(ALLOTTED_MIB - held - launchers, abs=1)
        monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")
        monkeypatch.setenv("SLURM_MEM_PER_CPU", "350")
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
        assert host(ours).total.mib == 700
        monkeypatch.delenv("SLURM_MEM_PER_CPU")
        assert (host(ours).total.mib or 0.0) > 700, "0 is all that the node has"


IN_A_GROUP = """
import os, pathlib, sys
from carla_launcher.observe.ram import OwnerNames, Ram, RunProcesses
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
for owner in Ram(OwnerNames(lambda _: None)).pools(RunProcesses())[0].owners:
    print(*owner.pids)
"""


def test_only_processes_within_a_limit_take_of_it() -> None:
    with contextlib.closing(Group.or_skip(limit_mib=512)) as group, Hog() as within, Hog() as elsewhere:
        for hog in (within, elsewhere):
            hog.touch(2 * int(NAMED_MIB))
        group.take(within.pid)
        command = [sys.executable, "-c", IN_A_GROUP, str(group.folder)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout.split()
    assert (str(within.pid) in listed, str(elsewhere.pid) in listed) == (True, False)
