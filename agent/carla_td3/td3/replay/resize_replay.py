"""Resizes a replay to another capacity or frame size; the newest rows are kept, and a kill never leaves half of it.

Runs once, before a run continues, if the configuration asks for another replay than the run has. New files grow beside
the old ones, under other names. The ring changes at the one instant when ``replay.json`` is replaced; files that a kill
leaves behind are removed at the next start. So the disk holds both rings for a while. Rows keep their numbers, and the
count of steps continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from carla_run.events import CannotFit, MemoryPool, log_by
from carla_run.exits import Exit
from carla_run.memory.processes import MIB
from carla_td3.exits import AgentError
from carla_td3.td3.replay import index, resampling
from carla_td3.td3.replay.checksum import UNKNOWN
from carla_td3.td3.replay.frames import BLOCK, FrameStack, frame_shape
from carla_td3.td3.replay.layout import Layout, ReplayError, bytes_for
from carla_td3.td3.replay.reader import IN_FLIGHT
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay
from carla_td3.td3.replay.ring import (
    NoRoomError,
    Ring,
    allocate,
    free_bytes,
    lock_of_the_last_writer,
    require_planes,
)
from carla_td3.td3.replay.sampling import Rings

_BLOCK = 1024
"""Rows copied at once: 7 MiB of frames, three times as much while their size changes."""


@dataclass(frozen=True)
class Resized:
    """Result of a resizing."""

    capacity_before: int
    capacity: int
    side_before: int
    side: int
    rows: int
    """Rows kept."""
    dropped: int
    """Oldest rows, dropped."""
    seconds: float


def resize_replay(
    directory: Path,
    capacity: int,
    stack: FrameStack,
    reserve_mib: float,
    log: Callable[..., None],
    privileged: int = 0,
) -> None:
    """Resize the ring if its capacity or frame size differs, and log the event ``replay_reshaped``.

    Args:
        directory: of the ring, in the run's directory.
        capacity: rows.
        stack: frames of an image; their planes must be the present ones.
        reserve_mib: disk space to leave free.
        log: writes an event: its name, its cause, and numbers by name.
        privileged: privileged numbers per row; no resizing changes them.

    Raises:
        AgentError: the disk can't hold both for a while (exit 71, event ``cannot_fit``).
        ReplayError: the replay can't be used.
    """
    reserve = int(reserve_mib * MIB)
    try:
        done = resize(directory, capacity, stack, reserve, privileged)
    except NoRoomError as error:
        free = free_bytes(directory)
        shortage = CannotFit(
            cause=str(error),
            pool=MemoryPool.DISK,
            folder=str(directory.parent),
            needed_mib=round(bytes_for(capacity, stack.side, privileged, stack.planes) / MIB, 1),
            free_mib=round(free / MIB, 1),
            reserve_mib=reserve_mib,
            fitting_replay=max(0, free - reserve) // bytes_for(1, stack.side, privileged, stack.planes) or None,
        )
        log_by(log, shortage)
        raise AgentError(str(error), Exit.OUT_OF_MEMORY, shortage.pool) from None
    if done is not None:
        log("replay_reshaped", "the configuration asks for another replay", **asdict(done))


def resize_rings(
    rings: Mapping[int, Path],
    collectors: int,
    capacity: int,
    stack: FrameStack,
    reserve_mib: float,
    log: Callable[..., None],
    privileged: int = 0,
) -> None:
    """Resize each ring to its part of the capacity; rings of removed collectors to the rows that are still used.

    Args:
        rings: the existing rings, by collector.
        collectors: their future number; each has the same part.
        capacity: rows in all.
        stack, reserve_mib, log, privileged: see ``resize_replay``.

    Raises:
        AgentError, ReplayError: see ``resize_replay``.
    """
    gone = {number: Replay.open(folder, stack=stack) for number, folder in rings.items() if number >= collectors}
    written = [Replay.open(rings[number], stack=stack) for number in rings if gone and number < collectors]
    parts = dict.fromkeys((number for number in rings if number < collectors), capacity // collectors)
    for (number, ring), held in zip(gone.items(), Rings(written, list(gone.values()), capacity).held(), strict=True):
        parts[number] = ring.capacity if held >= ring.size else max(MIN_CAPACITY, held)
    del gone, written  # their mapped files are about to be replaced
    for number in sorted(parts, reverse=True):  # those that free space come first
        resize_replay(rings[number], parts[number], stack, reserve_mib, log, privileged)


def resize(directory: Path, capacity: int, stack: FrameStack, reserve: int = 0, privileged: int = 0) -> Resized | None:
    """Resize the ring if its capacity or frame size differs; return None if not, or if there is none.

    Args:
        directory: of the ring; files of an earlier, killed attempt are removed.
        capacity: rows.
        stack: frames of an image; their planes must be the present ones.
        reserve: bytes of disk space to leave free.
        privileged: privileged numbers per row; no resizing changes them.

    Raises:
        NoRoomError: the disk can't hold both rings for a while; the old one stays in use.
        ReplayError: another process writes, the ring can't be used, or its frames have other planes.
    """
    if not index.exists(directory):
        return None
    if capacity < MIN_CAPACITY:
        raise ReplayError(f"replay.capacity is {capacity}, expected at least {MIN_CAPACITY} rows.")
    with lock_of_the_last_writer(directory) as lock:
        old = index.read(directory)
        index.mend(directory, old)
        old.require_privileged(directory, privileged)
        _remove_what_does_not_count(directory, old)
        require_planes(directory, old, stack)
        if (old.capacity, old.side) == (capacity, stack.side):
            return None
        return _resized(Ring.mapped(directory, old, lock), capacity, stack, reserve)


def _resized(old: Ring, capacity: int, stack: FrameStack, reserve: int) -> Resized:
    begun_s = time.monotonic()
    rows, before = int(old.published[0]), old.layout
    held = max(0, rows - before.capacity + IN_FLIGHT, before.first - stack.reach)
    start = max(held, rows - capacity)
    layout = replace(
        before,
        capacity=capacity,
        side=stack.side,
        first=start + stack.reach if start else 0,
        generation=before.generation + 1,
    )
    _require_room(old.directory, layout, reserve)
    allocate(old.directory, layout.arrays)
    _copy(old, Ring.mapped(old.directory, layout, old.lock), start, rows)
    index.write(old.directory, layout)
    _remove_what_does_not_count(old.directory, layout)
    seconds = round(time.monotonic() - begun_s, 3)
    return Resized(before.capacity, capacity, before.side, stack.side, rows - start, start - held, seconds)


def _copy(old: Ring, new: Ring, start: int, end: int) -> None:
    """Copy rows [start, end), and wait until they are on the disk."""
    for begin in range(start, end, _BLOCK):
        numbers = np.arange(begin, min(begin + _BLOCK, end))
        here, there = numbers % old.layout.capacity, numbers % new.layout.capacity
        frames = old.frames[here]
        if new.layout.side != old.layout.side:
            planes = frames.reshape(len(frames), *frame_shape(old.layout.side)[:2], old.layout.planes, BLOCK**2)
            cells = [resampling.frames(planes[:, :, :, plane], new.layout.side) for plane in range(old.layout.planes)]
            frames = np.stack(cells, axis=3).reshape(len(frames), -1)
        new.frames[there] = frames
        new.rows[there] = old.rows[here]
        if new.layout.side != old.layout.side:
            for number in numbers[old.rows["checksum"][here] != UNKNOWN].tolist():
                new.seal(number)
    new.flush()


def _require_room(directory: Path, layout: Layout, reserve: int) -> None:
    needed, free = sum(layout.arrays.values()), free_bytes(directory)
    if needed + reserve > free:
        raise NoRoomError(
            f"{directory}: resizing this replay takes {needed / MIB:.0f} MiB beside the present one for a while, "
            f"memory.reserve_mib {reserve / MIB:g} left over, and the disk has {free / MIB:.0f} MiB free: free "
            f"some, or set replay.capacity to at most {max(0, free - reserve) // (needed // layout.capacity)}."
        )


def _remove_what_does_not_count(directory: Path, layout: Layout) -> None:
    for pattern in ("frames*.u8", "rows*.bin"):
        for path in directory.glob(pattern):
            if path.name not in layout.files:
                path.unlink()
