"""What a GPU holds now, for a person's own script: ``log_gpu_memory("after the model")``, ``memory_summary()``.

Owns the readings and their words. Makes no context on a card and allocates nothing there; without a card it says why.
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
    """What PyTorch's allocator has of a card for this process, MiB: tensors, the cache with them, and their maxima."""

    tensors: float
    tensors_peak: float
    reserved: float
    reserved_peak: float

    def __str__(self) -> str:
        tensors = f"{self.tensors:.0f} MiB in tensors (at most {self.tensors_peak:.0f})"
        return f"{tensors}, {self.reserved:.0f} reserved (at most {self.reserved_peak:.0f})"


@dataclass(frozen=True)
class GpuMemory:
    """A card at one moment, MiB.

    Attributes:
        free, total: as the driver counts, all processes; None where it can't be asked.
        here: of this process, in PyTorch; None where it doesn't use the card.
        problem: why nothing is known of the card; empty if something is.
    """

    device: int
    free: float | None = None
    total: float | None = None
    here: Allocated | None = None
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"no GPU memory to tell of: {self.problem}"
        known = self.free is not None and self.total is not None
        card = f"{self.free:.0f} of {self.total:.0f} MiB free" if known else "its free memory can't be asked"
        here = "nothing yet" if self.here is None else str(self.here)
        return f"GPU {self.device}: {card}; PyTorch in this process: {here}"


def read_gpu_memory(device: int = 0) -> GpuMemory:
    """Return what a card holds now; ``device`` is its index as CUDA counts, CUDA_VISIBLE_DEVICES included."""
    free, total = _of_the_driver(device) or _of_the_context(device) or (None, None)
    here = _allocated(device)
    problem = "" if free is not None or here is not None else str(cuda.look())
    return GpuMemory(device, free, total, here, problem)


def log_gpu_memory(prefix: str = "", device: int = 0) -> None:
    """Print one line of what a card holds now, all processes and this one's PyTorch, after ``prefix``."""
    print(f"{prefix}: {read_gpu_memory(device)}" if prefix else read_gpu_memory(device), flush=True)


def memory_summary(device: int = 0) -> str:
    """Return that line, one of this process's RAM, and PyTorch's own table of its allocator, where it uses the card."""
    torch = _torch_in_use()
    room, held = ram_room(None), held_mib(os.getpid()) or 0.0
    ram = f"RAM: {0.0 if room is None else room.free_mib:.0f} MiB free; this process holds {held:.0f}"
    table = [] if torch is None else [torch.cuda.memory_summary(device)]
    return "\n".join([str(read_gpu_memory(device)), ram, *table])


def _of_the_driver(device: int) -> tuple[float, float] | None:
    """Return free and total as NVML counts; None without its package (nvidia-ml-py), its library or such a card."""
    try:
        from carla_run.memory.nvml import Nvml
    except ImportError:
        return None
    index = Nvml.index_of(visible_name(device))
    card = None if index is None else Nvml.once(index).card
    return None if card is None else (card.free_mib, card.total_mib)


def visible_name(device: int) -> str:
    """Return the index or UUID by which the driver knows the card that CUDA counts so."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return (visible[device].strip() if device < len(visible) else "") or str(device)


def _of_the_context(device: int) -> tuple[float, float] | None:
    """Return free and total as CUDA counts, where this process has a context anyway."""
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
    """Return torch where this process uses CUDA; asking one that doesn't would make a context."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None
