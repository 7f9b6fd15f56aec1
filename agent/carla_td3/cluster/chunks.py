"""Transfer of steps from a node's ring to the learner's ring: which rows to send, and that each arrives once.

The node's ring begins where the learner's ends, so a row has the same number in both; that is its sequence number. Owns
no connection.
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
"""Steps in a chunk. A chunk is smaller if the collector waits or ends, or after a second."""
UNACKNOWLEDGED = 64
"""Steps that a collector may be ahead of the learner's disk. A kill loses at most this many."""
ROWS = 1024
"""Rows in a node's ring: room for the unacknowledged steps and the first observations of as many episodes."""
GATHERED_S = 0.05
"""Limit for reading a batch: after this time, ``ADVANCE`` rows of a full ring may be overwritten."""


class GapError(ReplayError):
    """A chunk doesn't follow the last row here. None of it was stored."""


@dataclass(frozen=True)
class Head:
    """Where a ring ends."""

    rows: int
    steps: int

    @classmethod
    def of(cls, ring: Ring) -> Head:
        """Return the end of this ring. A node's ring begins with only this."""
        rows = int(ring.published[0])
        return cls(rows, int(ring.rows["step"][(rows - 1) % ring.layout.capacity]) if rows else 0)


@dataclass(frozen=True)
class Chunk:
    """Rows and their frames, as in a ring. The last row is a transition."""

    first: int
    """Number of the first row."""
    rows: NDArray[Any]
    frames: NDArray[np.uint8]


def begin_at(ring: Ring, head: Head) -> None:
    """Make a new ring continue where another one ends, without its rows."""
    if head.rows:
        ring.rows["step"][(head.rows - 1) % ring.layout.capacity] = head.steps
        ring.published[0] = head.rows


def cut(ring: Ring, acknowledged: int) -> Chunk | None:
    """Return copies of the rows from ``acknowledged`` on; None if there are none.

    Raises:
        GapError: the ring no longer holds them, or never did.
    """
    end, capacity = int(ring.published[0]), ring.layout.capacity
    if not end - capacity < acknowledged <= end:
        raise GapError(f"{ring.directory}: row {acknowledged} was asked for, and it ends at {end}.")
    if acknowledged == end:
        return None
    slots = np.arange(acknowledged, end) % capacity
    return Chunk(acknowledged, ring.rows_at(slots), ring.frames[slots])


class ChunkReceiver:
    """The learner's copy of a ring on another machine.

    Args:
        ring: open for writing.
        sleep: used to wait; nothing waits until the ring is full.
    """

    def __init__(self, ring: Ring, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ring, self._sleep = ring, sleep

    @property
    def head(self) -> Head:
        """End of the stored rows; everything before it is acknowledged."""
        return Head.of(self._ring)

    def take(self, chunk: Chunk) -> int:
        """Append the rows that are new, and return how many; they are published when this returns.

        Raises:
            GapError: rows before them are missing.
        """
        here, capacity = self.head.rows, self._ring.layout.capacity
        if chunk.first > here:
            raise GapError(f"{self._ring.directory}: rows {here} to {chunk.first - 1} are missing.")
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
        """Release the ring to another writer."""
        self._ring.close()
