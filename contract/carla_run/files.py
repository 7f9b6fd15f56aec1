"""Reads and writes files safely: a reader, or the disk after a power cut, has the old file or the new one, whole.

A run's folder may belong to a container or to another user. So no link that others could have made is followed, and
no call blocks on a pipe.
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
MOST_BYTES = 64 << 20
"""Most bytes of a file that is read as a whole; those of a run have far fewer, but for its lines."""
MAX_LINKS = 40
"""Most links in one path, as in path_resolution(7)."""


def write_whole(path: Path, content: str | bytes, *, durable: bool = True, private: bool = False) -> None:
    """Write a file atomically: to a temporary name in the same folder, then rename.

    Only its owner can write the file.

    Args:
        path: path of the file.
        content: the whole content; characters that UTF-8 can't encode become ``?``.
        durable: wait until it is on the disk; otherwise a crash of the machine may leave the old file or an empty one.
        private: only its owner can read it as well.

    Raises:
        OSError: it can't be written; the old file is unchanged.
    """
    temporary, mode = f".{path.name}.{os.getpid()}", 0o600 if private else 0o644
    with folder_of(path) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        # Whatever the umask: the group must not be able to write what a later start may run.
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
    """Open a file to append bytes, unbuffered; create it if needed.

    Raises:
        OSError: it can't be opened, or isn't a regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(_opened(path, flags), "ab", buffering=0)


def append_line(path: Path, line: bytes, *, durable: bool = False) -> None:
    """Add a line in one call, or nothing: a filling disk takes a part, which would spoil the next line too.

    So would one that a kill or a crash of the machine left unfinished: it is ended first.

    Args:
        path: of the file, made if need be.
        line: without its end.
        durable: wait until it is on the disk.

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
        if durable:
            os.fsync(file.fileno())


def open_to_read(path: Path) -> BinaryIO:
    """Open a file to read, unbuffered.

    Raises:
        OSError: as :func:`open_to_append`.
    """
    return os.fdopen(_opened(path, os.O_RDONLY | os.O_CLOEXEC), "rb", buffering=0)


def read_whole(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: as :func:`open_to_append`, or it has more than ``most_bytes``.
    """
    with open_to_read(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read()


def written_s(path: Path) -> float | None:
    """Return when a file or folder was last written, seconds since 1970.

    None if it is gone, a link to nothing, or can't be looked at: in another user's folder, or on a disk that fails.
    """
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def bytes_in(path: Path) -> int:
    """Return a file's size; 0 if it is gone or can't be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _opened(path: Path, flags: int) -> int:
    with folder_of(path) as folder:
        try:  # non-blocking, since opening a pipe waits for its other end
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
    """Give a descriptor of a file's folder. For root, every link in the path must be root's.

    Opens one folder after the other, since a folder that was checked could be replaced by a link before it is opened.
    Errors name the file's whole path, though the calls are given only a name and a folder's descriptor.

    Raises:
        OSError: the folder doesn't exist, or such a link is in the path.
    """
    left, links = list(reversed(path.parent.parts)), 0
    here = os.open("/" if path.is_absolute() else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while left:
            with _named(path):
                there = os.open(left.pop(), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            status = os.fstat(there)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here = there
                continue
            target = Path(os.readlink("", dir_fd=there))
            os.close(there)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if status.st_uid != ROOT and _is_root():
                raise OSError(errno.ELOOP, "a link on the way that isn't root's", str(path))
            left += reversed(target.parts)
        with _named(path):
            yield here
    finally:
        os.close(here)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _is_root() -> bool:
    """Return whether this is the machine's root; to root of a user namespace, the real root's links are foreign."""
    mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    return os.geteuid() == ROOT and mapped == ["0", "0", "4294967295"]


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_name(user: int) -> str:
    """Return a user's name and number for a sentence; only the number if the name is unknown."""
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return f"user {user}"
