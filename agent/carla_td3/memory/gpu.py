"""Present GPU memory, for a user's own script: ``log_gpu_memory("after the model")``, ``memory_summary()``.

Owns the readings and their wording. Creates no context and allocates nothing on a GPU; without one it says why.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from carla_run.memory.processes import MIB, held_mib
from carla_run.memory.room import ram_room
from carla_td3 import cuda


@dataclass(frozen=True)
class Allocated:
    """PyTorch's allocator in this process, MiB: tensors, cache including tensors, and the maxima of both."""

    tensors: float
    tensors_peak: float
    reserved: float
    reserved_peak: float

    def __str__(self) -> str:
        tensors = f"{self.tensors:.0f} MiB in tensors (at most {self.tensors_peak:.0f})"
        return f"{tensors}, {self.reserved:.0f} reserved (at most {self.reserved_peak:.0f})"


@dataclass(frozen=True)
class GpuMemory:
    """A GPU at one moment, MiB.

    Attributes:
        free, total: of all processes, from the driver; None if it can't be asked.
        here: of PyTorch in this process; None if it doesn't use the GPU.
        problem: why nothing is known of the GPU; empty if something is.
    """

    device: int
    free: float | None = None
    total: float | None = None
    here: Allocated | None = None
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"no GPU memory to report: {self.problem}"
        known = self.free is not None and self.total is not None
        card = f"{self.free:.0f} of {self.total:.0f} MiB free" if known else "its free memory is unknown"
        here = "nothing yet" if self.here is None else str(self.here)
        return f"GPU {self.device}: {card}; PyTorch in this process: {here}"


def read_gpu_memory(device: int = 0) -> GpuMemory:
    """Return the present memory of a GPU; ``device`` is CUDA's index, which CUDA_VISIBLE_DEVICES affects."""
    free, total = _of_the_driver(device) or _of_the_context(device) or (None, None)
    here = _allocated(device)
    problem = "" if free is not None or here is not None else str(cuda.cuda_status())
    return GpuMemory(device, free, total, here, problem)


def log_gpu_memory(prefix: str = "", device: int = 0) -> None:
    """Print one line after ``prefix``: the GPU's memory, of all processes and of this one's PyTorch."""
    print(f"{prefix}: {read_gpu_memory(device)}" if prefix else read_gpu_memory(device), flush=True)


def memory_summary(device: int = 0) -> str:
    """Return that line, a line on this process's RAM, and PyTorch's table of its allocator if it uses the GPU."""
    torch = _torch_in_use()
    room, held = ram_room(None), held_mib(os.getpid()) or 0.0
    ram = f"RAM: {0.0 if room is None else room.free_mib:.0f} MiB free; this process holds {held:.0f}"
    table = [] if torch is None else [torch.cuda.memory_summary(device)]
    return "\n".join([str(read_gpu_memory(device)), ram, *table])


def _of_the_driver(device: int) -> tuple[float, float] | None:
    """Return free and total from NVML; None without its package (nvidia-ml-py), its library or such a GPU."""
    try:
        from carla_run.memory.nvml import DriverError, Nvml
    except ImportError:
        return None
    try:
        index = Nvml.index_of(visible_name(device))
    except DriverError:
        return None
    card = None if index is None else Nvml.read_once(index).card
    return None if card is None else (card.free_mib, card.total_mib)


def visible_name(device: int) -> str:
    """Return the driver's index or UUID of the GPU with this CUDA index."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return (visible[device].strip() if device < len(visible) else "") or str(device)


def _of_the_context(device: int) -> tuple[float, float] | None:
    """Return free and total from CUDA if this process already has a context."""
    if (torch := _torch_in_use()) is None:
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return free / MIB, total / MIB


def _allocated(device: int) -> Allocated | None:
    if (torch := _torch_in_use()) is None:
        return None
    of = torch.cuda
    figures = (of.memory_allocated, of.max_memory_allocated, of.memory_reserved, of.max_memory_reserved)
    return Allocated(*(figure(device) / MIB for figure in figures))


def _torch_in_use() -> Any:
    """Return torch if this process uses CUDA; otherwise asking it would create a context."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None
