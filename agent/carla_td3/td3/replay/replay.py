"""The replay: episodes in, batches out; every frame is stored once; one writer per ring, many readers.

Owns how rows are written. ``ring`` owns the files; ``reader`` and ``sampling`` read them. Never
touches networks or the environment. A row holds one observation and the transition that *arrived* at it, and never
changes once published. So a writer killed at any instant loses no finished transition, an episode of T transitions
takes T + 1 rows, and readers need no lock. An episode's first row (episode_step 0) is no transition and is never drawn;
the others' stacks reach back to it at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.td3.replay.frames import DEFAULT, FrameStack
from carla_td3.td3.replay.layout import ReplayError
from carla_td3.td3.replay.reader import ADVANCE, IN_FLIGHT, Batch, Reader
from carla_td3.td3.replay.ring import Ring
from carla_td3.td3.replay.sampling import Source

__all__ = ["Batch", "Replay", "ReplayError"]

MIN_CAPACITY = 2 * (IN_FLIGHT + DEFAULT.reach + ADVANCE)


class Replay(Reader, Source):
    """The ring of transitions: ``create`` for its one writer, ``open`` for all readers."""

    def __init__(self, ring: Ring, stack: FrameStack) -> None:
        Reader.__init__(self, ring, stack)
        Source.__init__(self)
        self._episode_step: int | None = None  # of the newest row written; None outside an episode

    @classmethod
    def create(cls, directory: Path, capacity: int, stack: FrameStack = DEFAULT, privileged: int = 0) -> Replay:
        """Open the replay for writing, after the rows that it holds; if there is none, allocate it in full.

        Raises:
            ReplayError: the disk is too small, another process writes, or the ring is of another capacity, frame size
                or row.
        """
        if capacity < MIN_CAPACITY:
            raise ReplayError(f"replay.capacity is {capacity}, expected at least {MIN_CAPACITY} rows.")
        return cls(Ring.create(directory, capacity, stack, privileged), stack)

    @classmethod
    def open(cls, directory: Path, writable: bool = False, stack: FrameStack = DEFAULT) -> Replay:
        """Open an existing replay of any capacity and frame size; its batches hold ``stack``'s frames.

        Raises:
            ReplayError: there is none, it has another layout, or (writable) another process writes.
        """
        return cls(Ring.open(directory, writable), stack)

    def close(self) -> None:
        """Release the lock for another writer; the mapping ends with its last reference."""
        self._ring.close()

    @property
    def _rings(self) -> Sequence[Reader]:
        return (self,)

    def start_episode(
        self, frame: NDArray[np.uint8], vector: NDArray[np.float32], privileged: NDArray[np.float32] | None = None
    ) -> None:
        """Store an episode's first observation: frame (planes, S, S), vector (53,), privileged (P,).

        ``privileged`` only if the rows hold it. It is published with the first transition.
        """
        self._episode_step = 0
        self._write(self.rows, frame, (self.steps, vector, (0.0, 0.0), 0.0, 0, False, False, 0), privileged)

    def append(
        self,
        action: NDArray[np.float32],
        reward: float,
        terminated: bool,
        truncated: bool,
        frame: NDArray[np.uint8],
        vector: NDArray[np.float32],
        privileged: NDArray[np.float32] | None = None,
    ) -> None:
        """Publish a transition: action (2,), reward, how the episode ended, and the observation that it led to.

        Raises:
            ReplayError: no episode is open; after a final transition, or a restart, ``start_episode`` comes first.
        """
        if self._episode_step is None:
            raise ReplayError(f"{self._ring.directory}: a transition outside an episode; call start_episode first.")
        row = self.rows + (self._episode_step == 0)
        self._episode_step += 1
        values = (self.steps + 1, vector, action, reward, self._episode_step, terminated, truncated, 0)
        self._write(row, frame, values, privileged)
        self._ring.published[0] = row + 1  # one aligned store, after all that it announces
        if terminated or truncated:
            self._episode_step = None

    def _write(
        self, row: int, frame: NDArray[np.uint8], values: tuple[Any, ...], privileged: NDArray[np.float32] | None
    ) -> None:
        slot, found = row % self.capacity, 0 if privileged is None else len(privileged)
        if found != self.layout.privileged:
            raise ValueError(f"{found} privileged numbers for a replay of {self.layout.privileged}")
        self._ring.frames[slot] = self._stack.cells(frame).reshape(-1)
        self._ring.rows[slot] = (*values, privileged) if found else values
        self._ring.seal(row)
