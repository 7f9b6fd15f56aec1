"""Folders for results: created before the work begins; if one can't be, a sentence says why.

Owns the choice of that sentence: free space, another user's folder, or another reason. Writes no result.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from carla_run.files import user_name
from carla_run.memory.errors import FULL

FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
FAILING = frozenset({errno.EIO, errno.EUCLEAN, errno.ESTALE, errno.EREMOTEIO})
"""Error numbers of a disk, or a network file system, that fails."""


def make(folder: Path) -> None:
    """Create a folder with its parents and check that a file can be written there, before hours of work.

    Raises:
        OSError: it can't.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(folder)) from None


def refusal(error: OSError) -> str:
    """Return why a file can't be written, or read if its disk fails, and what to do."""
    path = error.filename or "A file of this run"
    if error.errno in FAILING:
        return f"{path}: {failing(error)}"
    barrier = _barrier(Path(path)) if error.errno in FORBIDDEN else None
    if barrier is not None:
        return f"{path}: can't be written ({error.strerror}): {_owner_sentence(barrier)}"
    if error.errno in FULL:
        return f"{path}: can't be written ({error.strerror}): free some space, or choose another place."
    return f"{path}: can't be written ({error.strerror}); choose another place."


def failing(error: OSError) -> str:
    """Return what to say after the path of a file whose disk fails."""
    return (
        f"its disk fails ({error.strerror}): look at the kernel's messages (`dmesg`), copy the run to another disk, "
        "and resume it there."
    )


def _barrier(path: Path) -> Path | None:
    """Return the path that keeps this process out: the nearest closed folder, or the file itself in an open one."""
    closed = [place for place in (path, *path.parents) if os.access(place, os.F_OK) and not os.access(place, os.W_OK)]
    if closed[:2] == [path, path.parent] and not path.is_dir():
        return path.parent
    return closed[0] if closed else None


def _owner_sentence(place: Path) -> str:
    there, own = place.stat(), os.getuid()
    if there.st_uid == own:
        return f"{place} is {user_name(own)}'s own, but closed to writing: chmod u+w {place}, or choose another place."
    outside = f"{on_host(own, _map('uid'))}:{on_host(os.getgid(), _map('gid'))}"
    named = outside != f"{own}:{os.getgid()}" or there.st_uid != 0  # only another namespace's root is a user
    settings = f"RUN_UID={there.st_uid} and RUN_GID={there.st_gid}" if named else "RUN_UID and RUN_GID"
    return (
        f"{place} belongs to {user_name(there.st_uid)} and this runs as {user_name(own)}: `sudo chown -R {outside} "
        f"{place}`, run as its owner (for containers {settings} in .env), or choose another place."
    )


def on_host(number: int, table: str) -> int:
    """Return the number that the host gives to a user or group of this namespace.

    Args:
        number: in this namespace.
        table: of ``/proc/self/uid_map`` or ``gid_map``. Containers of a rootless or remapped engine have other numbers.
    """
    for line in table.splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= number < inside + count:
            return number - inside + outside
    return number


def _map(kind: str) -> str:
    try:
        return Path(f"/proc/self/{kind}_map").read_text(encoding="utf-8")
    except OSError:
        return ""
