"""Free and total RAM and disk space, and the rule for missing memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from carla_run.files import written_s
from carla_run.memory.cgroups import Group
from carla_run.memory.processes import MIB, PROC, amounts_mib, first_page


class Gpu(str, Enum):
    """State of a GPU, from the driver."""

    OK = "ok"
    NONE = "none"
    LOST = "lost"
    UNREADABLE = "unreadable"
    """There may be a GPU: the driver fails, and never worked before."""


@dataclass(frozen=True)
class Room:
    """Total of a memory, and the part that can be had now without taking it from a process."""

    total_mib: float
    free_mib: float


def missing(needed: float, free: float | None, reserve: float = 0.0) -> float:
    """Return how much is missing for a need and a reserve, all in the same unit; 0 if it fits.

    A need of 0 fits without a reserve, and anything fits if the free memory is unknown (None).
    """
    return 0.0 if free is None or needed <= 0 else max(0.0, needed + reserve - free)


def ram_room(group: Group | None, proc: Path = PROC) -> Room | None:
    """Return this machine's RAM, within a control group's limit; None if /proc doesn't report it."""
    amounts = amounts_mib(first_page(f"{proc}/meminfo"), b"MemTotal", b"MemAvailable")
    if len(amounts) < 2:
        return None
    total, free = amounts
    if group is None or group.limit_mib is None or group.room_mib is None:
        return Room(total, free)
    return Room(min(total, group.limit_mib), min(free, group.room_mib))


def disk_room(folder: Path) -> Room | None:
    """Return the space of the file system that a folder is, or would be, on; None if it can't be read.

    Free space doesn't include the part that is reserved for root.
    """
    folder = folder.resolve()
    while written_s(folder) is None and folder != folder.parent:
        folder = folder.parent
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return Room(disk.f_blocks * disk.f_frsize / MIB, disk.f_bavail * disk.f_frsize / MIB)
