"""Steps on their way from the ring of a collector's node to its ring here: which rows go, and that each comes once.

The node's ring begins where ours ends, so a row has the same number in both; that is its sequence. Owns no connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.td3.replay.layout import ReplayError
from carla_td3.td3.replay.reader import ADVANCE
from carla_td3.td3.replay.ring import Ring

STEPS = 16
"""Of a chunk; fewer where the collector waits or ends, or after a second."""
UNACKNOWLEDGED = 64
"""Steps that a collector may be ahead of what is known to lie on the learner's disk: what a kill may cost."""
ROWS = 1024
"""Of a node's ring: far more than that, with the first observations of as many episodes."""
GATHERED_S = 0.05
"""A batch is read in less: while one is, ``ADVANCE`` rows of a ring that has come round may be overwritten."""


class GapError(ReplayError):
    """A chunk that doesn't follow what is here; nothing of it was taken."""


@dataclass(frozen=True)
class Head:
    """Where a ring ends."""

    rows: int
    steps: int

    @classmethod
    def of(cls, ring: Ring) -> Head:
        """Return where this one ends; a ring of a node's has no more than that at first."""
        rows = int(ring.published[0])
        return cls(rows, int(ring.rows["step"][(rows - 1) % ring.layout.capacity]) if rows else 0)


@dataclass(frozen=True)
class Chunk:
    """Rows and their frames, as they lie in a ring; the last one is a transition."""

    first: int
    """The first one's number."""
    rows: NDArray[Any]
    frames: NDArray[np.uint8]


def begin_at(ring: Ring, head: Head) -> None:
    """Make a new ring go on where another one ends, without its rows."""
    if head.rows:
        ring.rows["step"][(head.rows - 1) % ring.layout.capacity] = head.steps
        ring.published[0] = head.rows


def cut(ring: Ring, acknowledged: int) -> Chunk | None:
    """Return the rows from that number on, copied; None if there are none.

    Raises:
        GapError: the ring doesn't hold them any more, or never did.
    """
    end, capacity = int(ring.published[0]), ring.layout.capacity
    if not end - capacity < acknowledged <= end:
        raise GapError(f"{ring.directory}: row {acknowledged} was asked for, and it ends at {end}.")
    if acknowledged == end:
        return None
    slots = np.arange(acknowledged, end) % capacity
    return Chunk(acknowledged, ring.rows_at(slots), ring.frames[slots])


class Received:
    """A ring of the learner's machine, whose rows come from another one.

    Args:
        ring: open for writing.
        sleep: waits; until a ring has come round, nothing does.
    """

    def __init__(self, ring: Ring, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ring, self._sleep = ring, sleep

    @property
    def head(self) -> Head:
        """Where it ends: what is here, and so acknowledged."""
        return Head.of(self._ring)

    def take(self, chunk: Chunk) -> int:
        """Append what isn't here yet, and return how many rows that was; they are finished when this returns.

        Raises:
            GapError: rows before them are missing.
        """
        here, capacity = self.head.rows, self._ring.layout.capacity
        if chunk.first > here:
            raise GapError(f"{self._ring.directory}: rows {here} to {chunk.first - 1} never came.")
        numbers = range(here, chunk.first + len(chunk.rows))
        for number in numbers:
            row = chunk.rows[number - chunk.first]
            self._ring.frames[number % capacity] = chunk.frames[number - chunk.first]
            self._ring.rows[number % capacity] = row
            if row["episode_step"]:  # an episode's first observation is published with its first transition
                self._ring.published[0] = number + 1
                if number > capacity and number % (ADVANCE // 2) == 0:
                    self._sleep(GATHERED_S / 2)
        return len(numbers)

    def close(self) -> None:
        """Let another writer in."""
        if self._ring.lock is not None:
            self._ring.lock.close()
