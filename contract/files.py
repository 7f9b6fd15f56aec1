"""Writing files so that a reader, or the disk after a power cut, has the old one or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write to a temporary name beside it, then rename; of a text, what UTF-8 can't hold is written as ``?``.

    Nobody but its owner can write it.

    Args:
        path: of the file.
        content: all of it.
        durable: wait until it is on the disk; else a crash of the machine may leave an older one, or an empty one.

    Raises:
        OSError: it can't be written; the old file stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Whatever the umask: what a later start believes and runs must not be open to the group.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("utf-8", errors="replace") if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until a file, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
