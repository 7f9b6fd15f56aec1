"""What a launcher that was killed left behind and that still ends by itself: an agent in its last checkpoint, say.

Everything that a launcher starts on this machine holds the run's lock with it. Waits for that lock, and takes nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

from carla_run.files import read_whole
from carla_run.locks import is_held, taken_by
from carla_run.paths import RunPaths

LOOK_S = 0.1
PROC = Path("/proc")


def await_leftovers(run: RunPaths, limit_s: float) -> bool:
    """Return whether the run is free, after waiting up to ``limit_s`` for what a dead launcher left.

    A launcher that lives is not waited for: False at once, and taking the lock says who it is.
    """
    deadline_s = time.monotonic() + limit_s
    while is_held(run.launcher_lock):
        if time.monotonic() >= deadline_s or owner_of(run.launcher_lock) is not None:
            return False
        time.sleep(LOOK_S)
    return True


def owner_of(lock: Path) -> int | None:
    """Return the process that wrote its id into the lock if it still holds it; a later one may bear the same id."""
    try:
        pid = int(read_whole(lock))
    except PermissionError:  # another user's: by the kernel's word
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
