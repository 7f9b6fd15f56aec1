"""Finds the rows of a ring that its disk has changed or lost, and leaves them out. Runs once, before a run continues.

A damaged row becomes an episode's first observation, which is never drawn. So do the rows after it whose pictures reach
back to it. Damaged rows at the new end are dropped, since the next row counts on from their step. All other rows stay
as they are. A kill on the way changes nothing for the next time: the damaged row itself is changed last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from carla_run.events import AgentEvent
from carla_td3.td3.replay import index
from carla_td3.td3.replay.checksum import UNKNOWN, bare, checksum
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import PUBLISHED, Layout, ReplayError
from carla_td3.td3.replay.reader import IN_FLIGHT
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.ring import Ring, lock_of_the_last_writer

LEFT_OUT = 2
"""``truncated`` of rows that are left out; no checksum holds for them any more."""
_LOOK, _FOUND = 64, 2
"""Rows before the ring's end that are tried, and undamaged ones among them: fewer, and the count is probably wrong."""
_MOST = 2**62
"""No ring counts so many rows."""
_NAMED = 5
"""Damaged rows that the sentence names."""


@dataclass(frozen=True)
class Damage:
    """Result of a search that found something."""

    folder: Path
    held: int
    """Rows that the ring held, by its count."""
    damaged: tuple[int, ...]
    """Numbers of the damaged rows."""
    left_out: int
    """Rows that aren't drawn any more: the damaged ones, and those whose pictures reach back to them."""
    counted: int
    """Rows ever published, by the file ``published``."""
    rows: int
    """Rows ever published, from now on."""

    def __str__(self) -> str:
        """Return a sentence for the user."""
        parts = []
        if self.damaged:
            named = ", ".join(map(str, self.damaged[:_NAMED])) + (", …" if len(self.damaged) > _NAMED else "")
            parts.append(
                f"{len(self.damaged)} of {self.held} rows are damaged ({named}); {self.left_out} are left out, with "
                "those whose pictures reach back to them"
            )
        if self.rows != self.counted:
            parts.append(f"{PUBLISHED} said {self.counted} rows, {self.rows} are used")
        return f"{self.folder}: {'; '.join(parts)}."

    def log(self, log: Callable[..., None]) -> None:
        """Write the event ``rows_damaged``."""
        numbers = {"damaged": len(self.damaged), "left_out": self.left_out, "rows": [self.counted, self.rows]}
        log(AgentEvent.ROWS_DAMAGED.value, str(self), folder=str(self.folder), **numbers)


def mend_rings(rings: Iterable[Path], stack: FrameStack, log: Callable[..., None]) -> None:
    """Leave the damaged rows of a run's rings out, and log an event ``rows_damaged`` for each ring that had some.

    A damaged ``replay.json`` is read from its copy, and written again (event ``replay_index_damaged``).

    Args:
        rings: folders of the rings, which no process writes now.
        stack: frames of an image.
        log: writes an event: its name, its cause, and numbers by name.

    Raises:
        ReplayError: a ring can't be used, or holds no undamaged row.
    """
    for folder in rings:
        with lock_of_the_last_writer(folder) as lock:
            ring = Ring.mapped(folder, _described(folder, log), lock)
            index.mend(folder, ring.layout)
            found = leave_out_damage(ring, stack.reach)
        if found is not None:
            found.log(log)


def undamaged(folder: Path, stack: FrameStack, log: Callable[..., None]) -> Replay:
    """Open a replay to read, with its damaged rows left out in this process only; its files stay as they are.

    Args:
        folder, stack, log: as for :func:`mend_rings`; another process may write the ring.

    Raises:
        ReplayError: as :func:`mend_rings`.
    """
    ring = Ring.mapped(folder, _described(folder, log), lock=None, private=True)
    found = leave_out_damage(ring, stack.reach)
    if found is not None:
        found.log(log)
    return Replay(ring, stack)


def _described(folder: Path, log: Callable[..., None]) -> Layout:
    layout, damaged = index.examined(folder)
    if damaged:
        log(AgentEvent.REPLAY_INDEX_DAMAGED.value, damaged, folder=str(folder))
    return layout


def leave_out_damage(ring: Ring, reach: int) -> Damage | None:
    """Leave the damaged rows of a ring out; return what was found, or None.

    Args:
        ring: mapped so that it can be changed.
        reach: number of earlier rows that hold a part of a row's transition.

    Raises:
        ReplayError: the ring holds no undamaged row.
    """
    with _Frames(ring) as frames:
        counted = int(ring.published.view("<u8")[0])
        end = _end(ring, frames, counted)
        rows = _without_damaged_end(ring, frames, end, reach)
        oldest = _oldest(ring, rows, reach)
        kept = [number for number in range(oldest, rows) if not frames.whole(number)]
        if len(kept) == rows - oldest and not (end == rows and _is_end(frames, end)):
            raise ReplayError(
                f"{ring.directory}: no row of this replay is undamaged, or {PUBLISHED} is: put a copy of the folder "
                "back, or choose another run directory."
            )
    if rows == counted:  # a writer may have overwritten the oldest: demonstrations can be those of a running training
        oldest = _oldest(ring, int(ring.published[0]), reach)
        kept = [number for number in kept if number >= oldest]
        if not kept:
            return None
    reaching = {number + each for number in kept for each in range(1, reach + 1)}.difference(kept, range(rows, end))
    reaching = {number for number in reaching if number < rows}
    _leave_out(ring, kept, reaching, oldest)
    if rows != counted:  # a private copy of the file would not move on
        ring.published[0] = rows
    damaged = (*kept, *range(rows, end))
    return Damage(ring.directory, end - oldest, damaged, len(damaged) + len(reaching), counted, rows)


class _Frames:
    """Compares rows with their checksums. Reads frames from the file: a map would end the process at a bad block."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._file = os.open(ring.directory / next(iter(ring.layout.arrays)), os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> _Frames:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def whole(self, number: int) -> bool:
        """Return whether a row is as it was stored, or left out; those of earlier versions count as whole."""
        if self._ring.rows["truncated"][number % self._ring.layout.capacity] == LEFT_OUT:
            return True
        if not self._has_none(number):
            return self.sealed(number)
        # Such rows come in episodes: a single one has lost its checksum, with all behind it in its page.
        return self._has_none(number - 1) or self._has_none(number + 1)

    def has_no_checksum(self, number: int) -> bool:
        """Return whether the row in this one's place has no checksum."""
        return bool(self._ring.rows["checksum"][number % self._ring.layout.capacity] == UNKNOWN)

    def _has_none(self, number: int) -> bool:
        """Return whether a row has something else, but no checksum."""
        return self.has_no_checksum(number) and any(self._ring.rows[number % self._ring.layout.capacity].tobytes())

    def sealed(self, number: int) -> bool:
        """Return whether a row has the checksum of its content and number."""
        slot, size = number % self._ring.layout.capacity, self._ring.layout.frame_bytes
        row = self._ring.rows[slot]
        try:
            return int(row["checksum"]) == checksum(number, bare(row), os.pread(self._file, size, slot * size))
        except OSError:
            return False


def _end(ring: Ring, frames: _Frames, counted: int) -> int:
    """Return the row after the newest, whether the count is right, has one changed bit, or is an old one."""
    flipped = (counted ^ 1 << bit for bit in range(64))
    found = next((each for each in (counted, *flipped) if each < _MOST and _is_end(frames, each)), counted)
    end = found
    while end < _MOST and _follows(ring, frames, end):
        end += 1
    if int(ring.published.view("<u8")[0]) != counted:  # the rows that follow are those of a running training
        return found
    return end - int(end > found and _is_first(ring, end - 1))  # it is published with its first step


def _is_end(frames: _Frames, end: int) -> bool:
    """Return whether the rows before this one are in their places; before row 0, whether the ring can be empty."""
    if end == 0:
        return frames.sealed(0) or frames.has_no_checksum(0)
    found = sum(1 for number in range(max(0, end - _LOOK), end) if frames.whole(number))
    return found >= min(_FOUND, end)


def _follows(ring: Ring, frames: _Frames, end: int) -> bool:
    """Return whether a whole row comes next: its writer was killed before it was published, or the count is old."""
    steps, capacity = ring.rows["step"], ring.layout.capacity
    before = int(steps[(end - 1) % capacity]) if end else 0
    return int(steps[end % capacity]) - before in (0, 1) and frames.sealed(end)


def _is_first(ring: Ring, number: int) -> bool:
    return bool(ring.rows["episode_step"][number % ring.layout.capacity] == 0)


def _oldest(ring: Ring, end: int, reach: int) -> int:
    return max(0, end - ring.layout.capacity + IN_FLIGHT, ring.layout.first - reach)


def _without_damaged_end(ring: Ring, frames: _Frames, end: int, reach: int) -> int:
    """Return the row after the newest that is kept: it is whole, and no first observation of a damaged step."""
    rows, oldest = end, _oldest(ring, end, reach)
    while rows > oldest and not frames.whole(rows - 1):
        rows -= 1
    return rows - int(oldest + 1 < rows < end and _is_first(ring, rows - 1))


def _leave_out(ring: Ring, damaged: Collection[int], reaching: Iterable[int], oldest: int) -> None:
    """Make first observations of these rows. The steps of damaged ones go on from the rows before them."""
    rows, capacity, lost = ring.rows, ring.layout.capacity, set(damaged)
    for slot in (number % capacity for number in reaching):
        rows["truncated"][slot] = LEFT_OUT
        rows["episode_step"][slot] = 0
    for number in sorted(damaged):
        slot = number % capacity
        if number > oldest:
            step = rows["step"][(number - 1) % capacity]
        else:
            step = rows["step"][next(each for each in count(number) if each not in lost) % capacity] - 1
        rows["step"][slot] = max(0, step)
        rows["episode_step"][slot] = 0
        rows["truncated"][slot] = LEFT_OUT  # last: until here it counts as damaged
