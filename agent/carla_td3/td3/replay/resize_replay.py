"""A replay resized: another capacity or frame size, the newest rows taken along, and never half of it.

Runs once, before a run goes on, where the configuration asks for another replay than the run has. The new files grow
beside the old ones, under names of their own; the ring changes at the one instant at which ``replay.json`` is replaced,
and a kill leaves what doesn't count, to be removed at the next start. So while it lasts the disk holds both. Rows keep
their numbers, and steps go on being counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from carla_run.events import CannotFit, MemoryPool, log_by
from carla_run.exits import Exit
from carla_td3.exits import AgentError
from carla_td3.td3.replay import resampling
from carla_td3.td3.replay.frames import BLOCK, FrameStack, frame_shape
from carla_td3.td3.replay.layout import META, Layout, ReplayError, bytes_for
from carla_td3.td3.replay.reader import IN_FLIGHT
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay
from carla_td3.td3.replay.ring import NoRoomError, Ring, allocate, free_bytes, locked, require_planes
from carla_td3.td3.replay.sampling import Rings

_MIB = 2**20
_BLOCK = 1024
"""Rows copied at once: 7 MiB of frames, three times as much while their size changes."""
_LAST_WRITER_S = 5.0
"""A collector whose learner was killed ends within milliseconds; its lock ends with it."""


@dataclass(frozen=True)
class Resized:
    """What was made of what."""

    capacity_before: int
    capacity: int
    side_before: int
    side: int
    rows: int
    """Taken along."""
    dropped: int
    """The oldest rows, which weren't."""
    seconds: float


def resize_replay(
    directory: Path,
    capacity: int,
    stack: FrameStack,
    reserve_mib: float,
    log: Callable[..., None],
    privileged: int = 0,
) -> None:
    """Resize the ring if it is of another capacity or frame size, and log it: event ``replay_reshaped``.

    Args:
        directory: of the ring, in its run's directory.
        capacity: rows.
        stack: of the frames; their planes stay what they are.
        reserve_mib: of the disk, to leave free.
        log: writes an event: its name, its cause, and the numbers by name.
        privileged: numbers of a row, which no resizing changes.

    Raises:
        AgentError: the disk can't hold both for a while (exit 71, event ``cannot_fit``).
        ReplayError: the replay can't be used.
    """
    reserve = int(reserve_mib * _MIB)
    try:
        done = resize(directory, capacity, stack, reserve, privileged)
    except NoRoomError as error:
        free = free_bytes(directory)
        shortage = CannotFit(
            cause=str(error),
            pool=MemoryPool.DISK,
            folder=str(directory.parent),
            needed_mib=round(bytes_for(capacity, stack.side, privileged, stack.planes) / _MIB, 1),
            free_mib=round(free / _MIB, 1),
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
    """Resize the rings to their parts of a capacity; those of collectors that are gone to what is still held of them.

    Args:
        rings: that there are, by collector.
        collectors: how many there will be; each has the same part.
        capacity: rows in all.
        stack: see ``resize_replay``; likewise ``reserve_mib``, ``log`` and ``privileged``.

    Raises:
        AgentError, ReplayError: see ``resize_replay``.
    """
    gone = {number: Replay.open(folder, stack=stack) for number, folder in rings.items() if number >= collectors}
    written = [Replay.open(rings[number], stack=stack) for number in rings if gone and number < collectors]
    parts = dict.fromkeys((number for number in rings if number < collectors), capacity // collectors)
    for (number, ring), held in zip(gone.items(), Rings(written, list(gone.values()), capacity).held(), strict=True):
        parts[number] = ring.capacity if held >= ring.size else max(MIN_CAPACITY, held)
    del gone, written  # what they map is about to be replaced
    for number in sorted(parts, reverse=True):  # first those that give room
        resize_replay(rings[number], parts[number], stack, reserve_mib, log, privileged)


def resize(directory: Path, capacity: int, stack: FrameStack, reserve: int = 0, privileged: int = 0) -> Resized | None:
    """Resize the ring if it is of another capacity or frame size; return None where it isn't, or there is none.

    Args:
        directory: of the ring; what an earlier, killed attempt left there is removed.
        capacity: rows.
        stack: of the frames; their planes stay what they are.
        reserve: bytes of the disk to leave free.
        privileged: numbers of a row, which no resizing changes.

    Raises:
        NoRoomError: the disk can't hold both rings for a while; the old one counts.
        ReplayError: another process writes, the ring can't be used, or its frames have other planes.
    """
    if not (directory / META).exists():
        return None
    if capacity < MIN_CAPACITY:
        raise ReplayError(f"replay.capacity is {capacity}, expected at least {MIN_CAPACITY} rows.")
    with _lock_of_the_last_writer(directory) as lock:
        old = Layout.read(directory)
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
    layout.write(old.directory)
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
    new.flush()


def _require_room(directory: Path, layout: Layout, reserve: int) -> None:
    needed, free = sum(layout.arrays.values()), free_bytes(directory)
    if needed + reserve > free:
        raise NoRoomError(
            f"{directory}: resizing this replay takes {needed / 2**20:.0f} MiB beside the present one for a while, "
            f"memory.reserve_mib {reserve / 2**20:g} left over, and the disk has {free / 2**20:.0f} MiB free: free "
            f"some, or set replay.capacity to at most {max(0, free - reserve) // (needed // layout.capacity)}."
        )


def _remove_what_does_not_count(directory: Path, layout: Layout) -> None:
    for pattern in ("frames*.u8", "rows*.bin"):
        for path in directory.glob(pattern):
            if path.name not in layout.files:
                path.unlink()


def _lock_of_the_last_writer(directory: Path) -> IO[bytes]:
    deadline_s = time.monotonic() + _LAST_WRITER_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ReplayError):
            return locked(directory)
        time.sleep(0.05)
    return locked(directory)
