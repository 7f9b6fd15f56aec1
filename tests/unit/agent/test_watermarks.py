"""Memory by phase: peaks belong to the phase that reached them; a device's are exact, whenever they are read."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch

from carla_td3.memory.watermarks import Watermarks

MIB = 2**20


class Device:
    """The last inch of CUDA: PyTorch's counters, set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocated = self.peak = 0
        self.others = 1000
        for name in ("memory_stats_as_nested_dict", "mem_get_info", "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def holds(self, mib: int) -> None:
        self.allocated, self.peak = mib, max(mib, self.peak)

    def memory_stats_as_nested_dict(self, _: torch.device) -> dict[str, Any]:
        figures = {"all": {"current": self.allocated * MIB, "peak": self.peak * MIB}}
        return {"allocated_bytes": figures, "reserved_bytes": figures}

    def mem_get_info(self, _: torch.device) -> tuple[int, int]:
        return (6000 - self.others - self.allocated) * MIB, 6000 * MIB

    def reset_peak_memory_stats(self, _: torch.device) -> None:
        self.peak = self.allocated


def test_what_a_device_held_for_a_moment_belongs_to_the_phase_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    device, memory = Device(monkeypatch), Watermarks(torch.device("cuda"))
    device.holds(100)
    memory.enter("updating")
    device.holds(700)
    device.holds(120)
    memory.enter("collecting")
    device.holds(130)
    memory.enter("updating")
    memory.read("updating")
    peaks = {phase: figures["device_allocated"] for phase, figures in memory.peaks.items()}
    assert peaks == {"starting": 100, "updating": 700, "collecting": 130}


def test_the_device_wide_figure_counts_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    device, memory = Device(monkeypatch), Watermarks(torch.device("cuda"))
    device.holds(100)
    memory.read("starting")
    assert (memory.now["device_used"], memory.now["device_free"]) == (1100, 4900)
    device.others = 0
    memory.read("starting")
    assert memory.now["device_used"] == 100
    assert memory.peaks["starting"]["device_used"] == 1100
    assert memory.scalars()["memory/starting/device_used_peak_mib"] == 1100


def test_both_processes_are_counted_and_a_collector_that_is_gone_is_left_out() -> None:
    memory = Watermarks(torch.device("cpu"))
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as collector:
        assert collector.stdout is not None
        collector.stdout.readline()
        memory.collector_pids = {0: collector.pid}
        memory.read("collecting")
        assert memory.now["host"] == pytest.approx(memory.now["learner"] + memory.now["collector"], abs=0.2)
        collector.communicate(b"\n")
    memory.read("collecting")
    assert "collector" not in memory.now
    assert memory.peaks["collecting"]["collector"] > 1


def test_a_phase_too_short_for_the_heartbeat_is_read_at_its_end() -> None:
    memory = Watermarks(torch.device("cpu"))
    memory.enter("saving")
    memory.enter("updating")
    assert memory.peaks["saving"]["learner"] > 10


def test_phases_that_alternate_are_read_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    memory = Watermarks(torch.device("cpu"), clock=lambda: now_s[0])
    readings = itertools.count()
    monkeypatch.setattr("carla_td3.memory.watermarks.held_mib", lambda _: float(next(readings)))
    for step in range(1000):
        now_s[0] += 0.001
        memory.enter("updating" if step % 2 else "collecting")
    assert 6 <= next(readings) // 2 <= 10, "each of the two processes once in 0.25 s, for each of the two phases"


def test_on_the_cpu_no_device_is_spoken_of() -> None:
    memory = Watermarks(torch.device("cpu"))
    memory.read("updating")
    assert set(memory.scalars()) == {
        "memory/learner_mib", "memory/host_mib", "memory/updating/learner_peak_mib", "memory/updating/host_peak_mib"
    }  # fmt: skip
