"""Locks on files: held as long as a process has the descriptor open, however that process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

_NOTE_BYTES = 200


class HeldError(Exception):
    """Another process holds the lock; ``holder`` is what it wrote into the file, or ``unknown``."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class Lock:
    """The only holder of a file. A child that inherits ``descriptor`` holds it, too: it is free when both have gone.

    The file stays when the lock is released: deleting it would let two processes hold two files of one name. One that
    was deleted by others is made again.
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
            os.close(descriptor)
            raise HeldError("".join(filter(str.isprintable, note)) or "unknown") from None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was deleted before it was locked


def _opened(path: Path, of_all_users: bool) -> int:
    """Open the file, or create it.

    Not with O_CREAT alone: in a sticky directory the kernel refuses that for another user's file
    (fs.protected_regular, proc(5)). Links and devices that another user laid there are refused.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        if of_all_users:
            os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:  # deleted since
        return _opened(path, of_all_users)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor


def is_held(path: Path) -> bool:
    """Return whether some process holds the lock; what a killed holder wrote about itself doesn't count."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
