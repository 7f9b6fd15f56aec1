"""Locks on files: held as long as a process has the descriptor open, however that process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from carla_run.files import folder_of

LOCKS = Path("/proc/locks")
_NOTE_BYTES = 200


class HeldError(Exception):
    """Another process holds the lock.

    Attributes:
        holder: what it wrote into the file, or ``unknown``; of a lock of all users any of them can have written it.
        pid: the process that took it, by the kernel's word; None where that doesn't tell. It may have ended, if
            others inherited the lock.
    """

    def __init__(self, holder: str, pid: int | None = None) -> None:
        super().__init__(holder)
        self.holder, self.pid = holder, pid


class Lock:
    """The only holder of a file. A child that inherits ``descriptor`` holds it, too: it is free when both have gone.

    Each user who can open a file, if only to read it, can hold its lock for ever: so only its owner can, unless it is
    ``of_all_users``. The file stays when the lock is released: deleting it would let two processes hold two files of
    one name. One that was deleted by others is made again.
    """

    def __init__(self, path: Path, note: str = "", *, of_all_users: bool = False) -> None:
        """Take it, and write a line into the file.

        Args:
            path: of the file.
            note: for the one that finds it held; this process's id if left out.
            of_all_users: whichever user created the file, each may take it, as in /tmp.

        Raises:
            HeldError: another process has it.
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
        """Give it back."""
        os.close(self.descriptor)


def _locked(path: Path, of_all_users: bool) -> int:
    """Return the descriptor of the locked file."""
    while True:
        descriptor = _opened(path, of_all_users)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note = os.pread(descriptor, _NOTE_BYTES, 0).decode(errors="replace").strip()
            pid = _taken_by(os.fstat(descriptor))
            os.close(descriptor)
            raise HeldError("".join(filter(str.isprintable, note)) or "unknown", pid) from None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was deleted before it was locked


def _opened(path: Path, of_all_users: bool) -> int:
    """Open the file, or create it.

    Not with O_CREAT alone: in a sticky directory the kernel refuses that for another user's file
    (fs.protected_regular, proc(5)). Links and devices that another user laid there are refused.
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
        os.fchmod(descriptor, mode)  # whatever the umask, and as earlier versions made it
    return descriptor


def is_held(path: Path) -> bool:
    """Return whether some process holds the lock; what a killed holder wrote about itself doesn't count."""
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
    """Return the process that took the lock, whichever user's file it is; None if it is free, or that is unknown.

    Unknown it is in a container, whose kernel doesn't show the processes outside, and over a network.
    """
    try:
        return _taken_by(path.stat())
    except OSError:
        return None


def _taken_by(file: os.stat_result) -> int | None:
    """Look the file up in /proc/locks (proc(5)): ``1: FLOCK  ADVISORY  WRITE 21950 fe:00:5415047 0 EOF``."""
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with contextlib.suppress(OSError):
        for line in LOCKS.read_bytes().decode().splitlines():
            words = line.split()
            if len(words) > 5 and (words[1], words[5]) == ("FLOCK", name):
                return int(words[4])
    return None
