"""The files of the replay: a memory-mapped ring of frames and rows, allocated whole, written by one process.

Owns ``replay.json`` (layout, written last), ``frames.u8``, ``rows.bin``, ``published`` and ``lock`` in the replay's
directory, and the sentences for people when they can't be used. Knows nothing of episodes or sampling.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from agent.td3.frames import ACTION, FRAME_SHAPE, VECTOR

FRAME_BYTES = int(np.prod(FRAME_SHAPE))
ROW = np.dtype(
    [
        ("step", "<i8"),  # finished transitions ever, this row's included
        ("vector", "<f4", VECTOR),
        ("action", "<f4", ACTION),
        ("reward", "<f4"),
        ("age", "<u4"),  # steps since the episode's first observation, whose age is 0
        ("terminated", "u1"),
        ("truncated", "u1"),
        ("unused", "V2"),  # keeps the rows 8-byte aligned
    ]
)
_LAYOUT = {"version": 1, "frame": list(FRAME_SHAPE), "vector": VECTOR, "action": ACTION, "row_bytes": ROW.itemsize}
_META = "replay.json"


class ReplayError(Exception):
    """A replay that can't be used; the message is one sentence for a person."""


@dataclass(frozen=True)
class Ring:
    """The mapped files. Read-only without a lock."""

    directory: Path
    capacity: int
    frames: NDArray[np.uint8]  # (capacity, 7056)
    rows: NDArray[Any]  # (capacity,) of ROW
    published: NDArray[np.int64]  # (1,): rows ever published; row r lies in slot r % capacity
    pages: mmap.mmap  # what ``frames`` is a view of
    lock: IO[bytes] | None

    @classmethod
    def create(cls, directory: Path, capacity: int) -> Ring:
        """Open the ring for writing; allocate it first where there is none.

        Raises:
            ReplayError: the disk is too small, another process writes, or the ring has another capacity or layout.
        """
        with contextlib.ExitStack() as on_error:
            lock = on_error.enter_context(_locked(directory))
            if not (directory / _META).exists():
                _allocate(directory, capacity)
            _check_capacity(directory, capacity)
            ring = cls._mapped(directory, capacity, lock)
            on_error.pop_all()
        return ring

    @classmethod
    def open(cls, directory: Path, writable: bool) -> Ring:
        """Open an existing ring, whatever its capacity.

        Raises:
            ReplayError: there is none, it has another layout, or (writable) another process writes.
        """
        capacity = _read_capacity(directory)
        return cls._mapped(directory, capacity, _locked(directory) if writable else None)

    @classmethod
    def _mapped(cls, directory: Path, capacity: int, lock: IO[bytes] | None) -> Ring:
        pages, rows, published = (_map(directory / name, lock is not None) for name in _sizes(capacity))
        if lock is None:
            # Frames are drawn from all over: what the kernel reads ahead, 128 KiB to 8 MiB a fault, is for nothing.
            pages.madvise(mmap.MADV_RANDOM)
        frames = np.frombuffer(pages, np.uint8).reshape(capacity, FRAME_BYTES)
        return cls(directory, capacity, frames, np.frombuffer(rows, ROW), np.frombuffer(published, "<i8"), pages, lock)

    def fetch(self, slots: NDArray[np.int64], count: int) -> None:
        """Have the kernel read ``count`` frames from each slot on, those that memory lacks; return before they came."""
        starts = slots * FRAME_BYTES // mmap.PAGESIZE * mmap.PAGESIZE
        ends = np.minimum((slots + count) * FRAME_BYTES, self.frames.size)
        with contextlib.suppress(OSError):  # no more than a hint
            for start, length in zip(starts.tolist(), (ends - starts).tolist(), strict=True):
                self.pages.madvise(mmap.MADV_WILLNEED, start, length)


def bytes_for(capacity: int) -> int:
    """Return the bytes on disk, and in RAM once all of it has been touched, of a ring of this many rows."""
    return sum(_sizes(capacity).values())


def _sizes(capacity: int) -> dict[str, int]:
    return {"frames.u8": capacity * FRAME_BYTES, "rows.bin": capacity * ROW.itemsize, "published": 8}


def _locked(directory: Path) -> IO[bytes]:
    """Return the lock file, held: the kernel lets go of it when the process ends, however it ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("ab")
    except OSError as error:
        raise ReplayError(f"{directory}: can't be written ({error.strerror}); choose another run directory.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ReplayError(f"{directory}: another process writes this replay; stop that run first.") from None
    return lock


def _allocate(directory: Path, capacity: int) -> None:
    """Reserve every block now: a sparse map on a full disk would end in SIGBUS in the middle of the night."""
    try:
        for name, size in _sizes(capacity).items():
            with (directory / name).open("wb") as file:  # truncates what a killed creation left
                _require_space(directory, size)
                os.posix_fallocate(file.fileno(), 0, size)
                os.fsync(file.fileno())
        temporary = directory / f"{_META}.tmp"
        with temporary.open("w", encoding="utf-8") as meta:
            json.dump({"capacity": capacity, **_LAYOUT}, meta)
            meta.flush()
            os.fsync(meta.fileno())
        temporary.replace(directory / _META)
    except (OSError, ReplayError) as error:
        for name in _sizes(capacity):
            (directory / name).unlink(missing_ok=True)
        full = not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise ReplayError(_too_small(directory, capacity) if full else f"{directory}: {error}.") from None


def _require_space(directory: Path, size: int) -> None:
    # Some filesystems accept a reservation that they can't honour, or spend minutes before they refuse it.
    if size > _free(directory):
        raise ReplayError


def _free(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _too_small(directory: Path, capacity: int) -> str:
    free = _free(directory)
    return (
        f"{directory}: a replay of {capacity} rows needs {bytes_for(capacity) / 2**20:.0f} MiB and the disk has "
        f"{free / 2**20:.0f} MiB free: free some, or set replay.capacity to at most {free // bytes_for(1)}."
    )


def _read_capacity(directory: Path) -> int:
    """Return the capacity that the layout file states, once files and layout prove to be ours and whole."""
    try:
        meta = json.loads((directory / _META).read_text(encoding="utf-8"))
        capacity = int(meta.pop("capacity"))
        whole = all((directory / name).stat().st_size == size for name, size in _sizes(capacity).items())
    except FileNotFoundError as error:
        raise ReplayError(f"{directory}: holds no replay ({error.filename} is missing).") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplayError(f"{directory / _META}: can't be read ({error}); choose another run directory.") from None
    if meta != _LAYOUT or not whole:
        reason = "its files are cut short" if meta == _LAYOUT else f"its layout is {meta}, expected {_LAYOUT}"
        raise ReplayError(f"{directory}: this replay can't be used, {reason}: choose another run directory.")
    return capacity


def _check_capacity(directory: Path, capacity: int) -> None:
    found = _read_capacity(directory)
    if found != capacity:
        raise ReplayError(
            f"{directory}: holds a ring of {found} rows, the configuration asks for {capacity}: "
            f"set replay.capacity to {found} or choose another run directory."
        )


def _map(path: Path, writable: bool) -> mmap.mmap:
    with path.open("r+b" if writable else "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
