"""File locks: held while a process has the descriptor open, so a killed process releases them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path

from carla_run.files import folder_of

LOCKS = Path("/proc/locks")
LOOKS, LOOK_S = 5, 0.01
"""Tries for a lock that is held, and the time between two."""
_NOTE_BYTES = 200


class HeldError(Exception):
    """Another process holds the lock.

    Attributes:
        holder: note in the file, or ``unknown``; any user can write the note of a lock ``of_all_users``.
        pid: the process that took the lock, from the kernel; None if unknown. If others inherited the lock, it may have
            ended.
    """

    def __init__(self, holder: str, pid: int | None = None) -> None:
        super().__init__(holder)
        self.holder, self.pid = holder, pid


class Lock:
    """An exclusive lock of a file. A child that inherits ``descriptor`` holds the lock as well.

    Every user that can open a file, even to read it, can lock it; so only the owner can open it, unless the lock is
    ``of_all_users``. Releasing the lock keeps the file: otherwise two processes could lock two files of the same name.
    """

    def __init__(self, path: Path, note: str = "", *, of_all_users: bool = False) -> None:
        """Take the lock, and write a note into the file.

        Args:
            path: path of the file.
            note: text for processes that find the lock held; by default this process's id.
            of_all_users: all users may take the lock, as in /tmp.

        Raises:
            HeldError: another process holds the lock.
            OSError: the file can't be opened for writing, or is a link, a device or a folder.
        """
        self.descriptor = _locked(path, of_all_users)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{note or os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)


def _locked(path: Path, of_all_users: bool) -> int:
    """Return the descriptor of the locked file."""
    looks = 0
    while True:
        descriptor = _opened(path, of_all_users)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            looks += 1
            if looks < LOOKS:  # ``is_held`` of another process takes the lock for an instant, too
                os.close(descriptor)
                time.sleep(LOOK_S)
                continue
            note = os.pread(descriptor, _NOTE_BYTES, 0).decode(errors="replace").strip()
            pid = _taken_by(os.fstat(descriptor))
            os.close(descriptor)
            raise HeldError("".join(filter(str.isprintable, note)) or "unknown", pid) from None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was deleted before it was locked


def _opened(path: Path, of_all_users: bool) -> int:
    """Open the file, or create it.

    O_CREAT isn't enough: in a sticky directory the kernel refuses it for another user's file (fs.protected_regular,
    proc(5)). Links and devices are refused.
    """
    flags, mode = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666 if of_all_users else 0o600
    with folder_of(path) as folder:
        try:
            descriptor = os.open(path.name, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
        except FileExistsError:
            try:
                descriptor = os.open(path.name, flags, dir_fd=folder)
            except FileNotFoundError:  # deleted since
                return _opened(path, of_all_users)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(descriptor, mode)  # whatever the umask, or the mode of earlier versions
    return descriptor


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock; the file's note doesn't count."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:  # another user's
        return taken_by(path) is not None
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def taken_by(path: Path) -> int | None:
    """Return the process that took the lock, also of another user's file; None if it is free or unknown.

    It is unknown in a container, which doesn't see outside processes, and on a network file system.
    """
    try:
        return _taken_by(path.stat())
    except OSError:
        return None


def _taken_by(file: os.stat_result) -> int | None:
    """Find the file in /proc/locks (proc(5)): ``1: FLOCK  ADVISORY  WRITE 21950 fe:00:5415047 0 EOF``."""
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with contextlib.suppress(OSError):
        for line in LOCKS.read_bytes().decode().splitlines():
            words = line.split()
            if len(words) > 5 and (words[1], words[5]) == ("FLOCK", name):
                return int(words[4])
    return None
