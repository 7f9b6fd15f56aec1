"""What is free is read as the kernel means it: the least of all control groups, without the pages of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.observe.ram import OwnerNames, Ram, RunProcesses
from carla_run.memory.processes import held_mib
from carla_td3 import config
from carla_td3.layered_yaml import ConfigError
from carla_td3.memory import estimate, fit, free
from carla_td3.memory.estimate import CUDA_CONTEXT, MIB, Free

GIB = 2**30
UNLIMITED_V1 = 9223372036854771712


UNDROPPABLE_V2 = {"anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock"}


class Machine:
    """A /proc and a cgroup tree in a folder."""

    def __init__(self, root: Path, available: int) -> None:
        self.proc, self.mount = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available // 1024} kB\n")

    def group(self, path: str, files: dict[str, object]) -> None:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")

    def v2(self, group: str, mount_root: str = "/") -> None:
        self._say(f"0::{group}", f"{mount_root} {self.mount} rw - cgroup2 cgroup2 rw")

    def v1(self, group: str) -> None:
        lines = f"4:memory,hugetlb:{group}\n3:cpu:/\n0::/"
        mount = f"/ {self.mount} rw shared:3 - cgroup cgroup rw,memory,hugetlb\n33 1 0:9 / /x rw - cgroup cgroup rw,cpu"
        self._say(lines, mount)

    def _say(self, groups: str, mount: str) -> None:
        (self.proc / "self" / "cgroup").write_text(groups + "\n")
        (self.proc / "self" / "mountinfo").write_text(f"32 31 0:29 {mount}\n")

    def room(self) -> int:
        """Return what the reader finds less this process, which it counts as free."""
        found = free.host_bytes(self.proc)
        assert found is not None
        return found - int((held_mib(os.getpid()) or 0) * 2**20)


def v2_files(limit: object, anon: int, file: int = 0) -> dict[str, object]:
    stat = f"anon {anon}\nfile {file}\nshmem {GIB // 8}\nslab_unreclaimable {GIB // 8}"
    return {"memory.max": limit, "memory.stat": stat, "memory.current": anon + file}


def near(expected: int) -> object:
    return pytest.approx(expected, abs=2**24)  # this process's own memory moves a little between two readings


def test_the_effective_limit_is_the_least_of_the_ancestors(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v2("/outer/inner")
    machine.group("outer", v2_files(4 * GIB, anon=GIB))
    machine.group("outer/inner", v2_files("max", anon=GIB // 2))
    assert machine.room() == near(4 * GIB - GIB - GIB // 4)


def test_pages_of_a_mapped_replay_are_no_pressure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v2("/a")
    machine.group("a", v2_files(4 * GIB, anon=GIB, file=2 * GIB))
    assert machine.room() == near(4 * GIB - GIB - GIB // 4)


def test_version_1_counts_the_whole_subtree(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v1("/docker/abc")
    stat = f"cache {GIB}\nrss 5\ntotal_rss {GIB}\ntotal_shmem {GIB // 2}\ntotal_cache {GIB}"
    machine.group("docker/abc", {"memory.limit_in_bytes": 3 * GIB, "memory.stat": stat})
    machine.group("", {"memory.limit_in_bytes": UNLIMITED_V1, "memory.stat": stat})
    assert machine.room() == near(3 * GIB - GIB - GIB // 2)


def test_in_a_container_the_mount_may_begin_at_the_group_itself(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v2("/docker/abc", mount_root="/docker/abc")
    machine.group("", v2_files(2 * GIB, anon=GIB))
    assert machine.room() == near(2 * GIB - GIB - GIB // 4)


@pytest.mark.parametrize("field", sorted(UNDROPPABLE_V2))
def test_plan_and_agent_count_the_same_fields_of_a_container(tmp_path: Path, field: str) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v2("/a")
    machine.group("a", {"memory.max": 4 * GIB, "memory.stat": f"{field} {GIB}\nfile {GIB}\nslab_reclaimable {GIB}"})
    assert machine.room() == near(3 * GIB)
    names = OwnerNames(lambda _id: None)
    (machine.proc / "meminfo").write_text(f"MemTotal: {64 * 2**20} kB\nMemAvailable: {64 * 2**20} kB\n")
    (pool,) = Ram(names, machine.proc).pools(RunProcesses())
    assert pool.free.mib == 3 * 1024


def test_without_a_limit_the_machine_s_own_memory_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=3 * GIB)
    machine.v2("/")
    assert machine.room() == near(3 * GIB)


def test_a_group_over_its_limit_has_nothing_free(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=64 * GIB)
    machine.v2("/a")
    machine.group("a", v2_files(GIB, anon=2 * GIB))
    assert machine.room() == near(0)


def test_where_the_kernel_says_nothing_nothing_is_known(tmp_path: Path) -> None:
    assert free.host_bytes(tmp_path) is None


def test_the_real_machine_has_room_for_this_test() -> None:
    found = free.host_bytes()
    assert found is not None
    assert 2**24 < found < 2**50


def test_a_run_s_own_files_count_as_free_and_a_run_to_be_has_the_disk_of_the_nearest_folder_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def statvfs(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(f_blocks=2000, f_bavail=1000, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)  # nobody else's files come and go on this one
    run = tmp_path / "runs" / "new"
    assert free.disk_bytes(run) == 4_096_000
    (run / "replay").mkdir(parents=True)
    (run / "replay" / "frames.u8").write_bytes(bytes(70_000))
    (run / "checkpoints" / "step-1").mkdir(parents=True)
    (run / "checkpoints" / "step-1" / "tensors").write_bytes(bytes(5_000))
    (run / "agent.log").write_bytes(bytes(900))
    found = free.disk_bytes(run)
    folders = sum(folder.stat().st_size for folder in (run / "checkpoints").iterdir())
    assert found == 4_096_000 + 75_000 + folders
    assert asked == [tmp_path, run]


def stand_in_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Let child processes find a torch that has a GPU."""
    (folder / "torch.py").write_text(f"class cuda:\n    @staticmethod\n    def mem_get_info():\n        {answer}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(("fraction", "expected"), [(None, GIB), (0.5, GIB), (0.125, GIB // 2)])
def test_a_cap_on_the_process_limits_what_the_device_has_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraction: float | None, expected: int
) -> None:
    stand_in_torch(tmp_path, monkeypatch, f"return {GIB}, {4 * GIB}")
    assert free.device_bytes(fraction) == expected + CUDA_CONTEXT


@given(
    context_mib=st.integers(0, 2000),
    free_mib=st.integers(0, 3000),
    fraction=st.none() | st.floats(0.01, 1.0),
    batch=st.sampled_from([16, 256, 2048]),
)
def test_whether_a_run_fits_beside_a_context_does_not_depend_on_the_figure_that_stands_for_it(
    context_mib: int, free_mib: int, fraction: float | None, batch: int
) -> None:
    def verdict(context: int) -> tuple[bool, int, int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(estimate, "CUDA_CONTEXT", context)
            room = Free(free.device_room(free_mib * MIB, 6000 * MIB, fraction), None, None)
            asked = config.validate({"td3": {"batch_size": batch}}, "test")
            fits = fit.refusal(asked, True, room) is None
            return fits, fit.largest_batch(asked, True, room), fit.largest_micro_batch(asked, True, room)

    assert verdict(context_mib * MIB) == verdict(CUDA_CONTEXT)


def test_a_device_too_full_for_a_context_has_nothing_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_torch(tmp_path, monkeypatch, "raise RuntimeError('CUDA error: out of memory')")
    assert free.device_bytes(None) == 0


def test_a_device_that_does_not_work_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_torch(tmp_path, monkeypatch, "raise RuntimeError('CUDA driver version is insufficient')")
    with pytest.raises(ConfigError, match=r"can't be read \(RuntimeError: CUDA driver version is insufficient\)"):
        free.device_bytes(None)


@pytest.mark.parametrize(("free_mib", "full"), [(63, True), (64, False), (4000, False)])
def test_a_device_with_less_than_the_reserve_is_full(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, full: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_mib * 2**20, 6000 * 2**20))
    assert free.device_is_full(64.0) is full


def test_a_device_that_answers_no_more_or_was_never_begun_with_is_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[int, int]:
        raise RuntimeError("CUDA error: unspecified launch failure")

    assert not free.device_is_full(1e9)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    assert not free.device_is_full(1e9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_asking_makes_no_context_in_this_process() -> None:
    program = (
        "import torch; from carla_td3.memory import free; found = free.device_bytes(None);"
        "print(found > 0, torch.cuda.is_initialized())"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == ["True", "False"]
