"""What there is of RAM and of a disk, and what is missing for what is needed: the one rule, for every memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from carla_run.memory.cgroups import Group
from carla_run.memory.processes import MIB, PROC, amounts_mib, first_page


class Gpu(str, Enum):
    """What the driver says of a GPU."""

    OK = "ok"
    NONE = "none"
    LOST = "lost"
    UNREADABLE = "unreadable"
    """There may be one: the driver fails, and it was never seen to work."""


@dataclass(frozen=True)
class Room:
    """What there is of a memory, and what of it could be had now without any process giving way."""

    total_mib: float
    free_mib: float


def missing(needed: float, free: float | None, reserve: float = 0.0) -> float:
    """Return how much is missing for what is needed beside a reserve; 0 where it fits.

    What needs nothing fits without a reserve, and anything fits where it is unknown (None) what is free. All three in
    one unit.
    """
    return 0.0 if free is None or needed <= 0 else max(0.0, needed + reserve - free)


def ram_room(group: Group | None, proc: Path = PROC) -> Room | None:
    """Return this machine's RAM, or what a control group leaves of it; None where Linux doesn't say."""
    amounts = amounts_mib(first_page(f"{proc}/meminfo"), b"MemTotal", b"MemAvailable")
    if len(amounts) < 2:
        return None
    total, free = amounts
    if group is None or group.limit_mib is None or group.room_mib is None:
        return Room(total, free)
    return Room(min(total, group.limit_mib), min(free, group.room_mib))


def disk_room(folder: Path) -> Room | None:
    """Return the file system that a folder is, or would be, on; None where it can't be read.

    Free is what this user may still write: the share that is kept for root is left out.
    """
    folder = folder.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return Room(disk.f_blocks * disk.f_frsize / MIB, disk.f_bavail * disk.f_frsize / MIB)
