"""The files of the replay: a memory-mapped ring of frames and rows, allocated in full, written by one process.

Owns the files' allocation and mapping, the file ``lock`` in the replay's directory, and the sentences for people if
they can't be used. Knows nothing of episodes or sampling.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from carla_run.memory.errors import FULL
from carla_td3.output_folders import failing
from carla_td3.td3.replay import index
from carla_td3.td3.replay.checksum import UNKNOWN, bare, checksum
from carla_td3.td3.replay.frames import DEFAULT, FrameStack
from carla_td3.td3.replay.layout import PUBLISHED, Layout, ReplayError, bytes_for

_LAST_WRITER_S = 5.0
"""Seconds to wait for a collector whose learner was killed; it and its lock end within milliseconds."""


class NoRoomError(ReplayError):
    """The disk is too small; the caller, which knows the request, makes the sentence."""


@dataclass(frozen=True)
class Ring:
    """The mapped files. Read-only without a lock."""

    directory: Path
    layout: Layout
    frames: NDArray[np.uint8]  # (capacity, 7056 or 4096 a plane)
    rows: NDArray[Any]  # (capacity,) of the layout's row
    published: NDArray[np.int64]  # (1,): rows ever published; row r lies in slot r % capacity
    pages: mmap.mmap  # what ``frames`` is a view of
    lock: IO[bytes] | None

    @classmethod
    def create(cls, directory: Path, capacity: int, stack: FrameStack = DEFAULT, privileged: int = 0) -> Ring:
        """Open the ring for writing; allocate it first if there is none.

        Raises:
            ReplayError: the disk is too small, another process writes, or the ring is of another capacity, frame size
                or row.
        """
        with contextlib.ExitStack() as on_error:
            lock = on_error.enter_context(locked(directory))
            if not index.exists(directory):
                _create(directory, Layout(capacity, stack.side, privileged=privileged, planes=stack.planes))
            found = index.read(directory)
            found.require_privileged(directory, privileged)
            _require_same(directory, found, capacity, stack)
            index.mend(directory, found)
            ring = cls.mapped(directory, found, lock)
            on_error.pop_all()
        return ring

    @classmethod
    def open(cls, directory: Path, writable: bool) -> Ring:
        """Open an existing ring, whatever its capacity.

        Raises:
            ReplayError: there is none, it has another layout, or (writable) another process writes.
        """
        layout = index.read(directory)
        return cls.mapped(directory, layout, locked(directory) if writable else None)

    @classmethod
    def mapped(cls, directory: Path, layout: Layout, lock: IO[bytes] | None, private: bool = False) -> Ring:
        """Map allocated files, for writing if there is a lock; ``private`` rows can be changed in this process only.

        Raises:
            ReplayError: a block can't be read, or (for writing) the disk has no room for a block that a file lacks.
        """
        for name in (*layout.arrays, PUBLISHED)[1:]:
            _require_readable(directory / name)
        if lock is not None:
            for name in layout.files:
                _fill_holes(directory / name)
        figures = mmap.ACCESS_COPY if private else mmap.ACCESS_READ if lock is None else mmap.ACCESS_WRITE
        access = (mmap.ACCESS_READ if private else figures, figures, figures)
        pages, rows, published = map(_map, (directory / name for name in layout.files), access)
        if lock is None:
            # Frames are drawn at random: the kernel's read-ahead, 128 KiB to 8 MiB per fault, would be wasted.
            pages.madvise(mmap.MADV_RANDOM)
        frames = np.frombuffer(pages, np.uint8).reshape(layout.capacity, layout.frame_bytes)
        return cls(
            directory, layout, frames, np.frombuffer(rows, layout.row), np.frombuffer(published, "<i8"), pages, lock
        )

    def close(self) -> None:
        """Release the lock for another writer; the mapping ends with its last reference."""
        if self.lock is not None:
            self.lock.close()

    def rows_at(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return copies of the rows in these slots, in the same shape; slots go on at the ring's other end."""
        # As bytes: numpy copies structured rows one field at a time, which takes ten times as long.
        whole = self.rows.view((np.void, self.rows.itemsize))
        return whole.take(slots, mode="wrap").view(self.rows.dtype)

    def seal(self, number: int) -> None:
        """Store a row's checksum: the last store before the row is published."""
        slot = number % self.layout.capacity
        self.rows["checksum"][slot] = UNKNOWN  # a kill here leaves a row that counts as whole
        self.rows["checksum"][slot] = checksum(number, bare(self.rows[slot]), self.frames[slot].data)

    def flush(self) -> None:
        """Wait until frames and rows are on the disk."""
        for name in self.layout.arrays:
            with (self.directory / name).open("rb") as file:
                os.fsync(file.fileno())

    def fetch(self, slots: NDArray[np.int64], count: int) -> None:
        """Ask the kernel to read ``count`` frames from each slot on that memory lacks; doesn't wait for them."""
        starts = slots * self.layout.frame_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        ends = np.minimum((slots + count) * self.layout.frame_bytes, self.frames.size)
        with contextlib.suppress(OSError):  # only a hint
            for start, length in zip(starts.tolist(), (ends - starts).tolist(), strict=True):
                self.pages.madvise(mmap.MADV_WILLNEED, start, length)


def locked(directory: Path) -> IO[bytes]:
    """Return the lock file, locked; the kernel releases it when the process ends, however it ends.

    Raises:
        ReplayError: another process holds it, or the directory can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Another user who could open it could lock it for ever.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        lock = os.fdopen(os.open(directory / "lock", flags, 0o600), "ab")
    except OSError as error:
        raise ReplayError(f"{directory}: can't be written ({error.strerror}); choose another run directory.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ReplayError(f"{directory}: another process writes this replay; stop that run first.") from None
    return lock


def lock_of_the_last_writer(directory: Path) -> IO[bytes]:
    """Return the lock file as :func:`locked`, after waiting for a collector whose learner was killed."""
    deadline_s = time.monotonic() + _LAST_WRITER_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ReplayError):
            return locked(directory)
        time.sleep(0.05)
    return locked(directory)


def allocate(directory: Path, files: Mapping[str, int]) -> None:
    """Reserve every block now: a write to a sparse map on a full disk raises SIGBUS, hours later.

    Args:
        directory: of the ring; files of these names from a killed allocation are truncated.
        files: their bytes, by name.

    Raises:
        NoRoomError: the disk is too small; none of the files is there.
        ReplayError: the disk refuses them for another reason; none of the files is there.
    """
    try:
        for name, size in files.items():
            with (directory / name).open("wb") as file:
                _require_space(directory, size)
                os.posix_fallocate(file.fileno(), 0, size)
                os.fsync(file.fileno())
    except (OSError, NoRoomError) as error:
        for name in files:
            (directory / name).unlink(missing_ok=True)
        if isinstance(error, NoRoomError) or error.errno in (*FULL, errno.EFBIG):
            raise NoRoomError(f"{directory}: the disk has no room for {size} bytes.") from None
        raise ReplayError(f"{directory}: {error}.") from None


def free_bytes(directory: Path) -> int:
    """Return the free bytes of the directory's disk."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _require_space(directory: Path, size: int) -> None:
    # Some filesystems accept a reservation that they can't keep, or spend minutes before they refuse it.
    if size > free_bytes(directory):
        raise NoRoomError(f"{directory}: the disk has no room for {size} bytes.")


def _create(directory: Path, layout: Layout) -> None:
    try:
        allocate(directory, layout.files)
        index.write(directory, layout)
    except NoRoomError:
        raise ReplayError(_too_small(directory, layout)) from None
    except OSError as error:
        raise ReplayError(f"{directory}: {error}.") from None


def _too_small(directory: Path, layout: Layout) -> str:
    free, needed = free_bytes(directory), sum(layout.files.values())
    fitting = free // bytes_for(1, layout.side, layout.privileged, layout.planes)
    return (
        f"{directory}: a replay of {layout.capacity} rows needs {needed / 2**20:.0f} MiB and the disk has "
        f"{free / 2**20:.0f} MiB free: free some disk there, or set replay.capacity to at most {fitting}."
    )


def _require_same(directory: Path, found: Layout, capacity: int, stack: FrameStack) -> None:
    require_planes(directory, found, stack)
    if (found.capacity, found.side) != (capacity, stack.side):
        raise ReplayError(
            f"{directory}: holds a ring of {found.capacity} rows of {found.side}×{found.side} pixels, the "
            f"configuration asks for {capacity} of {stack.side}×{stack.side}: training resizes it when it starts; "
            f"set replay.capacity to {found.capacity}, or choose another run directory."
        )


def require_planes(directory: Path, found: Layout, stack: FrameStack) -> None:
    """Raise ReplayError if the frames have other planes: colours can't be made from grey, nor a missing view."""
    if found.planes != stack.planes:
        raise ReplayError(
            f"{directory}: holds frames of {found.planes} planes, environment.camera gives {stack.planes}: set its "
            "channels and narrow as they were, or choose another run directory."
        )


def _require_readable(path: Path) -> None:
    """Raise ReplayError if a block of this file can't be read: in a map, that would end the process (SIGBUS)."""
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(2**20):
                pass
    except OSError as error:
        raise ReplayError(f"{path}: {failing(error)}") from None


def _fill_holes(path: Path) -> None:
    """Reserve the blocks that a file lacks, as a sparse copy does: see :func:`allocate`.

    Raises:
        ReplayError: the disk is full.
    """
    found = path.stat()
    lacks = found.st_size - 512 * found.st_blocks
    if lacks <= 0:
        return
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, found.st_size)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise ReplayError(
            f"{path}: is sparse, and the disk has no room for the {lacks / 2**20:.0f} MiB that it lacks: free some "
            "disk there, or copy the run to another disk, and resume it there."
        ) from None


def _map(path: Path, access: int) -> mmap.mmap:
    with path.open("r+b" if access == mmap.ACCESS_WRITE else "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=access)
