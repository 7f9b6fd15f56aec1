"""The disk that a run is on, as a pool; what replay and checkpoints take of it."""

from __future__ import annotations

import os
from pathlib import Path

from carla_launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, measured
from carla_run.memory.processes import MIB

_GROWING = ("replay", "checkpoints")
_BLOCK = 512
"""Bytes in a unit of st_blocks, whatever the file system's own (stat(2))."""


def disk_pool(run: Path) -> Pool | None:
    """Return the file system that a run's directory is, or would be, on; None where it can't be read.

    Free is what this user may still write: the share that is kept for root is left out.
    """
    folder = run.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    owners = (Owner(part, OwnerKind.AGENT, (), measured(size_mib(run / part))) for part in _GROWING)
    return Pool(
        "disk",
        PoolKind.DISK,
        measured(disk.f_blocks * disk.f_frsize / MIB),
        measured(disk.f_bavail * disk.f_frsize / MIB),
        tuple(sorted((owner for owner in owners if owner.held.mib), key=lambda owner: -(owner.held.mib or 0.0))),
    )


def size_mib(folder: Path) -> float:
    """Return what a folder's files take of the disk, holes left out; files that go meanwhile are left out, too."""
    taken = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                taken += os.lstat(os.path.join(parent, name)).st_blocks  # noqa: PTH118  once a second: half the time
            except OSError:
                continue
    return taken * _BLOCK / MIB
