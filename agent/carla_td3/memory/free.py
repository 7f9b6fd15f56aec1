"""Free memory of device, host and disk, each read from the kernel or the driver.

Owns the readers. Memory that this run already holds counts as free, because the estimate counts it again: compare the
two, but not one of them with another program's figure. Judges nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from carla_run.exits import Exit
from carla_run.memory.cgroups import Cgroups
from carla_run.memory.processes import held_mib
from carla_run.memory.room import disk_room, ram_room
from carla_td3.layered_yaml import ConfigError
from carla_td3.memory import estimate, gpu_probe
from carla_td3.memory.estimate import MIB, Free


def read(run: Path, cuda: bool, fraction: float | None) -> Free:
    """Return the memory that a run in this directory could have.

    Args:
        run: the run's directory; its replay and checkpoints count as free.
        cuda: whether the learner is on a GPU.
        fraction: ``memory.per_process_memory_fraction``.
    """
    return Free(device_bytes(fraction) if cuda else None, host_bytes(), disk_bytes(run), str(run))


def device_bytes(fraction: float | None) -> int:
    """Return the GPU's free bytes, at most the configured limit.

    Raises:
        ConfigError: CUDA doesn't work; the sentence has its message.
    """
    answer = _ask_gpu(gpu_probe.ROOM)
    if answer is None:
        return 0  # not even room for a context
    free, total = answer
    return device_room(free, total, fraction)


def device_room(free: int, total: int, fraction: float | None) -> int:
    """Return the bytes that a run could have of a device, including its context.

    The context is counted with the same figure as in the estimate, so that whether a run fits doesn't depend on that
    figure.

    Args:
        free, total: bytes, read while a process had a context, which it has given back since.
        fraction: largest share of the device for PyTorch's allocator; None for all of it.
    """
    beside = free if fraction is None else min(free, int(fraction * total))
    return beside + estimate.CUDA_CONTEXT


def device_has_bfloat16() -> bool:
    """Return whether the GPU computes bfloat16 in hardware; false if it has no room for a context.

    Raises:
        ConfigError: CUDA doesn't work; the sentence has its message.
    """
    return _ask_gpu(gpu_probe.BFLOAT16) is True


def _ask_gpu(what: str) -> Any:
    """Return the answer of a separate process about the GPU; None if the GPU is too full for that process's context.

    Raises:
        ConfigError: CUDA doesn't work; the sentence has its message.
    """
    command = [sys.executable, "-m", gpu_probe.__name__, what]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    if asked.returncode == Exit.FINISHED:
        return json.loads(asked.stdout)
    if asked.returncode == Exit.OUT_OF_MEMORY:
        return None
    said = (asked.stderr.strip().splitlines() or [f"exit {asked.returncode}"])[-1]
    raise ConfigError(f"The GPU can't be read ({said}): mend CUDA, or use --device cpu.")


def device_is_full(reserve_mib: float) -> bool:
    """Return whether this process's device now has less free than the reserve; False without a device.

    A device that no longer answers is broken, not full.
    """
    torch = sys.modules.get("torch")  # a process that hasn't imported torch computes on no device
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        free, _ = torch.cuda.mem_get_info()
    except RuntimeError:
        return False
    return bool(free < reserve_mib * MIB)


def host_bytes(proc: Path = Path("/proc")) -> int | None:
    """Return the free bytes of RAM: the least of the machine's and of each control group's above this process."""
    room = ram_room(Cgroups(proc).of(), proc)
    return None if room is None else int((room.free_mib + (held_mib(os.getpid()) or 0.0)) * MIB)


def disk_bytes(run: Path) -> int | None:
    """Return the free bytes of the run's disk."""
    room = disk_room(run)
    try:
        held = sum(file.stat().st_size for part in ("replay", "checkpoints") for file in (run / part).rglob("*"))
    except OSError:
        return None
    return None if room is None else int(room.free_mib * MIB) + held
