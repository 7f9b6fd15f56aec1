"""Locks on files: held as long as a process has the descriptor open, however that process ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class HeldError(Exception):
    """Somebody else holds the lock; ``holder`` is the process id that its file names, or ``unknown``."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class Lock:
    """The only holder of a file. A child that inherits ``descriptor`` holds it, too: it is free when both have gone."""

    def __init__(self, path: Path) -> None:
        """Take it, and write this process's id into the file.

        Raises:
            HeldError: somebody else has it.
            OSError: the file can't be opened for writing.
        """
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self.descriptor, 64).decode(errors="replace").strip() or "unknown"
            os.close(self.descriptor)
            raise HeldError(holder) from None
        os.ftruncate(self.descriptor, 0)
        os.write(self.descriptor, f"{os.getpid()}\n".encode())

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give it back."""
        os.close(self.descriptor)


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
