"""Free memory as the kernel counts it: the least of all control groups, without the pages of files."""

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

from carla_run.memory.processes import held_mib
from carla_td3 import config
from carla_td3.layered_yaml import ConfigError
from carla_td3.memory import estimate, free
from carla_td3.memory.estimate import CUDA_CONTEXT, MIB, Free
from carla_td3.memory.fit import Fit
from tests.unit.kernel import KERNEL_MIB, Kernel, Level

GIB = 2**30


@pytest.mark.parametrize(("limit_mib", "room_mib"), [(4096, 3072 - KERNEL_MIB), (None, 8192)])
def test_the_room_is_the_least_of_machine_and_group_and_what_this_process_holds(
    tmp_path: Path, limit_mib: int | None, room_mib: int
) -> None:
    kernel = Kernel(tmp_path)
    kernel.memory(total=65_536, available=8192)
    kernel.process("self", "/a")
    kernel.level("a", Level(limit_mib, 1024, files=2048))
    expected = room_mib + (held_mib(os.getpid()) or 0.0)
    # This process's own memory moves a little between two readings.
    assert free.host_bytes(kernel.proc) == pytest.approx(expected * MIB, abs=2**24)


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

    monkeypatch.setattr(os, "statvfs", statvfs)  # no other files come and go on this one
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
            fits = Fit(asked, True, room).refusal is None
            return fits, Fit(asked, True, room).largest_batch, Fit(asked, True, room).largest_micro_batch

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
