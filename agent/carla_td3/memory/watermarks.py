"""Present memory of the run and its peaks in each phase: RAM of all processes; on CUDA tensors, cache, whole device.

Owns the readings and the peaks. The learner's main thread announces each phase, the heartbeat's thread reads once a
second. RAM's peaks are the highest of these readings, because the kernel has no peak without mapped files; the device's
peaks are exact. Judges nothing and writes no file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from carla_run.memory.processes import MIB, held_mib

Figures = dict[str, float]
"""MiB: ``learner``, ``collector`` (all of them) and their sum ``host``; on CUDA ``device_allocated`` (tensors),
``device_reserved`` (the allocator's cache, tensors included); for the whole device, all processes, ``device_used`` and
``device_free``.
"""

_END_READ_AFTER_S = 0.25
"""A phase's end is read only this long after its last reading: updating and collecting alternate at every step."""


class Watermarks:
    """The readings of one learner and its collectors."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = "starting"
        self._now: Figures = {}
        self._peaks: dict[str, Figures] = {}
        self._read_at_s: dict[str, float] = {}
        self.collector_pids: dict[int, int | None] = {0: None}
        """Process id of each collector, by its number."""

    @property
    def now(self) -> Mapping[str, float]:
        """The last reading."""
        return self._now

    @property
    def peaks(self) -> dict[str, Figures]:
        """Copies of the peaks by phase; ``device_free`` has none."""
        with self._lock:
            return {phase: dict(figures) for phase, figures in self._peaks.items()}

    def follow(self, device: torch.device) -> None:
        """Set the device that the learner computes on. An earlier GPU is still read, because its context stays."""
        if device.type == "cuda":
            self._device = device

    def enter(self, phase: str) -> None:
        """Begin a phase; the device's peak until now belongs to the phase before."""
        if phase == self._phase:
            return
        if self._clock() - self._read_at_s.get(self._phase, 0.0) >= _END_READ_AFTER_S:
            self.read(self._phase)
        with self._lock:
            self._raise(self._phase, self._device_peaks())
            if self._device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self._device)
            self._phase = phase

    def read(self, phase: str) -> None:
        """Read the present memory and update the peaks of a phase; any thread may call this."""
        figures = {**_host(self.collector_pids.values()), **self._device_now()}
        with self._lock:
            self._now = figures
            self._read_at_s[phase] = self._clock()
            self._raise(phase, {name: value for name, value in figures.items() if name != "device_free"})
            self._raise(self._phase, self._device_peaks())

    def scalars(self) -> dict[str, float]:
        """Return the last reading and the peaks, by names for TensorBoard."""
        now = {f"memory/{name}_mib": value for name, value in self._now.items()}
        peaks = self.peaks
        return now | {
            f"memory/{phase}/{name}_peak_mib": value for phase in peaks for name, value in peaks[phase].items()
        }

    def _raise(self, phase: str, figures: Mapping[str, float]) -> None:
        peaks = self._peaks.setdefault(phase, {})
        peaks.update({name: max(value, peaks.get(name, 0.0)) for name, value in figures.items()})

    def _device_now(self) -> Figures:
        if self._device.type != "cuda":
            return {}
        free, total = torch.cuda.mem_get_info(self._device)
        return {
            **self._allocator("current"),
            "device_used": round((total - free) / MIB, 1),
            "device_free": round(free / MIB, 1),
        }

    def _device_peaks(self) -> Figures:
        """Return the allocator's peaks since their last reset."""
        return self._allocator("peak") if self._device.type == "cuda" else {}

    def _allocator(self, what: str) -> Figures:
        # The nested form: the flat one sorts a few hundred names at every change of phase.
        stats: Mapping[str, Any] = torch.cuda.memory_stats_as_nested_dict(self._device)
        return {
            f"device_{kind}": round(stats[f"{kind}_bytes"]["all"][what] / MIB, 1)
            for kind in ("allocated", "reserved")
            if f"{kind}_bytes" in stats  # empty before the first tensor
        }


def _host(collector_pids: Iterable[int | None]) -> Figures:
    """Return RAM by process, and the sum; processes that are gone or unreadable are left out."""
    collectors = [mib for pid in list(collector_pids) if (mib := held_mib(pid)) is not None]
    by_process = {"learner": held_mib(os.getpid()), "collector": round(sum(collectors), 1) if collectors else None}
    known = {name: mib for name, mib in by_process.items() if mib is not None}
    return {**known, "host": round(sum(known.values()), 1)}
