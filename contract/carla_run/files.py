"""Writing files so that a reader, or the disk after a power cut, has the old one or the new one, never a part.

A run's folder may belong to a container, or to another user than the writer: no link that others may have laid
there is followed, and nothing is waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

ROOT = 0
MOST_LINKS = 40
"""On one way, as path_resolution(7) has it."""


def write_whole(path: Path, content: str | bytes, *, durable: bool = True, private: bool = False) -> None:
    """Write to a temporary name beside it, then rename; of a text, what UTF-8 can't hold is written as ``?``.

    Nobody but its owner can write it.

    Args:
        path: of the file.
        content: all of it.
        durable: wait until it is on the disk; else a crash of the machine may leave an older one, or an empty one.
        private: only its owner can read it, too.

    Raises:
        OSError: it can't be written; the old file stands.
    """
    temporary, mode = f".{path.name}.{os.getpid()}", 0o600 if private else 0o644
    with folder_of(path) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        # Whatever the umask: what a later start believes and runs must not be open to the group.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode("utf-8", errors="replace") if isinstance(content, str) else content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def open_to_append(path: Path) -> BinaryIO:
    """Return a file, made if need be, that bytes can be added to; they aren't buffered.

    Raises:
        OSError: it can't be opened, or is a link, a pipe or anything else but a file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(_opened(path, flags), "ab", buffering=0)


def append_line(path: Path, line: bytes) -> None:
    """Add a line in one call, or nothing: a filling disk takes a part, which would spoil the next line too.

    So would one that a kill or a crash of the machine left unfinished: it is ended first.

    Args:
        path: of the file, made if need be.
        line: without its end.

    Raises:
        OSError: as :func:`open_to_append`, or the disk is full.
    """
    with os.fdopen(_opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC), "r+b", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        torn = before and os.pread(file.fileno(), 1, before - 1) != b"\n"
        whole = (b"\n" if torn else b"") + line + b"\n"
        if os.write(file.fileno(), whole) < len(whole):
            os.ftruncate(file.fileno(), before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def open_to_read(path: Path) -> BinaryIO:
    """Return a file to read, which isn't buffered.

    Raises:
        OSError: as :func:`open_to_append`.
    """
    return os.fdopen(_opened(path, os.O_RDONLY | os.O_CLOEXEC), "rb", buffering=0)


def read_whole(path: Path) -> bytes:
    """Return what is in a file.

    Raises:
        OSError: as :func:`open_to_append`.
    """
    with open_to_read(path) as file:
        return file.read()


def _opened(path: Path, flags: int) -> int:
    with folder_of(path) as folder:
        try:  # without waiting: opening a pipe waits for its other end
            descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a link, expected a file", str(path)) from None
            raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if stat.S_ISDIR(mode) else "it isn't a file", str(path))


@contextlib.contextmanager
def folder_of(path: Path) -> Iterator[int]:
    """Give a descriptor of the folder that a file is in; root gets there by no link that isn't root's.

    Step by step: a folder that is looked at and then opened by its name may have become a link in between.

    Raises:
        OSError: there is none, or such a link is on the way.
    """
    left, links = list(reversed(path.parent.parts)), 0
    here = os.open("/" if path.is_absolute() else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while left:
            there = os.open(left.pop(), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            status = os.fstat(there)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here = there
                continue
            target = Path(os.readlink("", dir_fd=there))
            os.close(there)
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if status.st_uid != ROOT and _is_root():
                raise OSError(errno.ELOOP, "a link on the way that isn't root's", str(path))
            left += reversed(target.parts)
        yield here
    finally:
        os.close(here)


def _is_root() -> bool:
    """Return whether this is the machine's root; that of a user namespace sees root's links as another user's."""
    mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    return os.geteuid() == ROOT and mapped == ["0", "0", "4294967295"]


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


def user_name(user: int) -> str:
    """Return a user's name and number, for a sentence; the number only where the machine knows no name."""
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return f"user {user}"
