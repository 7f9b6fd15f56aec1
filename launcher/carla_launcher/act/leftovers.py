"""Waits for programs that a killed launcher left and that end by themselves, such as an agent in its last checkpoint.

Everything that a launcher starts on this machine holds the run's lock, so this waits for the lock. It takes nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

from carla_run.files import read_whole
from carla_run.locks import is_held, taken_by
from carla_run.paths import RunPaths

POLL_S = 0.1
PROC = Path("/proc")


def await_leftovers(run: RunPaths, limit_s: float) -> bool:
    """Wait up to ``limit_s`` for the programs of a killed launcher; return whether the run is free.

    Returns False at once if the launcher lives; taking the lock then names it.
    """
    deadline_s = time.monotonic() + limit_s
    while is_held(run.launcher_lock):
        if time.monotonic() >= deadline_s or owner_of(run.launcher_lock) is not None:
            return False
        time.sleep(POLL_S)
    return True


def owner_of(lock: Path) -> int | None:
    """Return the process that wrote its id into the lock, if it still holds it; None if not."""
    try:
        pid = int(read_whole(lock))
    except PermissionError:  # another user's file: ask the kernel
        pid = taken_by(lock) or 0
    except (OSError, ValueError):
        return None
    try:
        return pid if any(_same(descriptor, lock) for descriptor in (PROC / str(pid) / "fd").iterdir()) else None
    except PermissionError:  # another user's process: it lives
        return pid
    except OSError:
        return None


def _same(descriptor: Path, lock: Path) -> bool:
    try:
        return descriptor.samefile(lock)
    except OSError:  # closed since, or no file
        return False
