"""The replay: episodes in, batches out; every frame stored once, one writer, many readers.

Owns what a row means and which rows may be drawn; the files are ``ring``'s. Never touches networks or the environment.
A row holds one observation and the transition that *arrived* at it, and never changes once published. So a writer
killed at any instant loses no finished transition, an episode of T transitions takes T + 1 rows, and readers need no
lock. An episode's first row (episode_step 0) is no transition and is never drawn; the others' stacks reach back to it
at most.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent.td3.replay.frames import DEFAULT, FrameStack, frame_shape
from agent.td3.replay.layout import Layout, ReplayError
from agent.td3.replay.ring import Ring

__all__ = ["Batch", "Replay", "ReplayError"]

# Rows that the writer may be changing: an episode's first observation is published together with its first step.
IN_FLIGHT = 2
# Left out at the old end of a full ring: rows that the writer may advance while a batch is read.
_ADVANCE = 10
MIN_CAPACITY = 2 * (IN_FLIGHT + DEFAULT.reach + _ADVANCE)
# Batches that are fetched ahead after one that had to wait for the disk; then one isn't, to see whether it still must.
_FETCHED_AHEAD = 1_000


@dataclass(frozen=True)
class Batch:
    """B transitions from s to s', m steps later: one, or with n-step returns as many as the episode has, up to n.

    The first four frames of a row are the stack of s, its last four that of s'; for one step they share three.
    """

    frames: Tensor  # (B, 5, 21, 21, 16) uint8, space-to-depth, or (B, 8, …); before an episode's start its first one
    vector: Tensor  # (B, 53) float32, of s
    next_vector: Tensor  # (B, 53) float32, of s'
    action: Tensor  # (B, 2) float32 in [-1, 1]
    reward: Tensor  # (B,) float32, the sum of the m rewards, the k-th times γᵏ
    terminated: Tensor  # (B,) float32: 1 where s' is terminal; 0 also where a time limit ended the episode
    privileged: Tensor  # (B, P) float32, of s, never for the actor; P is 0 where the replay holds none
    next_privileged: Tensor  # (B, P) float32, of s'
    discount: Tensor  # (B,) float32: γᵐ⁻¹, 1 for one step

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; the same tensors where they are there already."""
        return Batch(*(getattr(self, name).to(device, non_blocking=True) for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence[Batch]) -> Batch:
        """Return one batch of several, in fresh memory."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def __len__(self) -> int:
        """How many transitions, B."""
        return len(self.reward)

    def __getitem__(self, rows: slice) -> Batch:
        """Return some of the transitions, as views."""
        return Batch(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class Replay:
    """The ring of transitions: ``create`` for the one writer, ``open`` for everybody else."""

    def __init__(self, ring: Ring, stack: FrameStack) -> None:
        self._ring = ring
        self._stack = stack
        self._episode_step: int | None = None  # of the newest row written; None outside an episode
        self._frames_out: dict[int, NDArray[np.uint8]] = {}  # a page fault for each fresh 4 KiB would double the time
        self._to_fetch = 0  # batches

    @classmethod
    def create(cls, directory: Path, capacity: int, stack: FrameStack = DEFAULT, privileged: int = 0) -> Replay:
        """Open the replay for writing and go on with what it holds; allocate it whole where there is none.

        Raises:
            ReplayError: the disk is too small, another process writes, or the ring is of another capacity, frame size
                or row.
        """
        if capacity < MIN_CAPACITY:
            raise ReplayError(f"replay.capacity is {capacity}, expected at least {MIN_CAPACITY} rows.")
        return cls(Ring.create(directory, capacity, stack, privileged), stack)

    @classmethod
    def open(cls, directory: Path, writable: bool = False, stack: FrameStack = DEFAULT) -> Replay:
        """Open an existing replay, whatever its capacity and frame size; its batches hold so many frames.

        Raises:
            ReplayError: there is none, it has another layout, or (writable) another process writes.
        """
        return cls(Ring.open(directory, writable), stack)

    def close(self) -> None:
        """Let another writer in; the mapping itself goes with the last reference to it."""
        if self._ring.lock is not None:
            self._ring.lock.close()

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return self._ring.layout.capacity

    @property
    def layout(self) -> Layout:
        """Capacity, frame size, and since when."""
        return self._ring.layout

    @property
    def rows(self) -> int:
        """Rows ever published: one a transition and one an episode."""
        return int(self._ring.published[0])

    @property
    def size(self) -> int:
        """Rows held now."""
        kept = self.rows - max(0, self.layout.first - self._stack.reach)
        return min(kept, self.capacity)

    @property
    def steps(self) -> int:
        """Finished transitions ever written."""
        rows = self.rows
        return self._step(rows - 1) if rows else 0

    @property
    def episodes(self) -> int:
        """Episodes ever begun: each has one row more than transitions."""
        return self.rows - self.steps

    def start_episode(
        self, frame: NDArray[np.uint8], vector: NDArray[np.float32], privileged: NDArray[np.float32] | None = None
    ) -> None:
        """Take an episode's first observation: frame (planes, S, S), vector (53,), privileged (P,).

        The last where the rows hold them. Published with the first transition.
        """
        self._episode_step = 0
        self._write(self.rows, frame, (self.steps, vector, (0.0, 0.0), 0.0, 0, False, False, b""), privileged)

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
        values = (self.steps + 1, vector, action, reward, self._episode_step, terminated, truncated, b"")
        self._write(row, frame, values, privileged)
        self._ring.published[0] = row + 1  # one aligned store, after all that it announces
        if terminated or truncated:
            self._episode_step = None

    def require_steps(self) -> None:
        """Refuse a replay that holds no transition.

        Raises:
            ReplayError: in one sentence.
        """
        if self.steps == 0:
            raise ReplayError(f"{self._ring.directory}: no transition to sample; collect some steps first.")

    def sample(
        self, batch: int, rng: np.random.Generator, until: int | None = None, n_step: int = 1, gamma: float = 1.0
    ) -> Batch:
        """Draw transitions uniformly, with replacement.

        Args:
            batch: how many, B.
            rng: the only source of chance: the same state and the same rows give the same batch.
            until: draw from the first so many transitions ever written (of those still held); None: from all.
                The batch then does not depend on what a writer, up to 10 rows ahead, has added since.
            n_step: rewards to sum, at most: fewer where the episode ended, by whatever, or has come no further yet.
            gamma: discount of each reward after the first.

        Returns:
            The batch on the CPU. Its ``frames`` are overwritten by the next call with the same B.

        Raises:
            ReplayError: there is nothing to draw from.
        """
        oldest = self._oldest(self._head(until))
        waits = _waits_for_disk()
        while True:
            whole = self._oldest_whole()  # before the head: a writer that comes round between the two only adds rows
            head = self._head(until)
            drawn = self._draw(batch, rng, max(oldest, whole), head)
            if drawn is not None:
                result = self._gather(drawn, head, n_step, gamma)
                if drawn.min() >= self._oldest_whole():
                    self._to_fetch = _FETCHED_AHEAD if _waits_for_disk() > waits else max(0, self._to_fetch - 1)
                    return result
            elif head <= whole or head > self._oldest_whole():
                raise ReplayError(f"{self._ring.directory}: no transition to sample; collect some steps first.")
            # The writer came round while this process was held up: what was read may be torn.
            oldest = self._oldest(self.rows)

    def fetch(self, batch: int, rng: np.random.Generator) -> None:
        """Have the frames read that ``sample`` will draw with the same arguments; does nothing for a ring in memory.

        A hint: no batch depends on it. Rows that the writer adds meanwhile shift what is drawn by about as many.
        """
        if self._to_fetch:
            rows = self._draw(batch, rng, self._oldest(self.rows), self.rows)
            if rows is not None:
                self._ring.fetch((rows - self._stack.reach) % self.capacity, self._stack.reach + 1 + IN_FLIGHT)

    def _oldest(self, head: int) -> int:
        return max(self.layout.first, head - self.capacity + IN_FLIGHT + self._stack.reach + _ADVANCE)

    def _oldest_whole(self) -> int:
        """Return the oldest row whose frame window the writer can't be changing now."""
        return max(self.layout.first, self.rows - self.capacity + IN_FLIGHT + self._stack.reach)

    def _head(self, until: int | None) -> int:
        """Return the row after the last that may be drawn: steps grow with the rows, so it is found by bisection."""
        high = self.rows
        if until is None or high == 0 or self._step(high - 1) <= until:
            return high
        low = self._oldest_whole()
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._step(middle) < until else (low, middle)
        return low + (self._step(low) == until)  # not the next episode's first row, which may or may not be there yet

    def _draw(self, batch: int, rng: np.random.Generator, oldest: int, head: int) -> NDArray[np.int64] | None:
        """Return rows in [oldest, head) that a transition arrives at; None: there is none.

        First observations are drawn again.
        """
        if head <= oldest or self._step(head - 1) == self._step(oldest) - (self._episode_steps(oldest) > 0):
            return None
        rows = rng.integers(oldest, head, batch)
        while (first := self._episode_steps(rows) == 0).any():
            rows[first] = rng.integers(oldest, head, int(first.sum()))
        return rows

    def _gather(self, rows: NDArray[np.int64], head: int, n_step: int, gamma: float) -> Batch:
        """Return the transitions whose first steps arrive at these rows."""
        last, first = self._last_rows(rows, head, n_step), rows - self._episode_steps(rows)
        stacks = rows[:, None] + self._stack.before, last[:, None] + self._stack.arrived[-self._stack.new(n_step) :]
        windows = np.maximum(np.concatenate(stacks, axis=1), first[:, None]) % self.capacity
        if windows.size not in self._frames_out:
            self._frames_out[windows.size] = np.empty((windows.size, self.layout.frame_bytes), dtype=np.uint8)
        frames = self._frames_out[windows.size]
        np.take(self._ring.frames, windows.ravel(), axis=0, out=frames, mode="clip")  # "raise" would copy twice
        before, stepped, arrived = self._ring.rows_at(np.stack((rows - 1, rows, last)) % self.capacity)
        none = np.empty((len(rows), 0))
        columns = (
            *(before["vector"], arrived["vector"], stepped["action"]),
            *(self._return(rows, last, n_step, gamma), arrived["terminated"]),
            *(each["privileged"] if self.layout.privileged else none for each in (before, arrived)),
            gamma ** (last - rows),
        )
        return Batch(
            torch.from_numpy(frames).view(*windows.shape, *frame_shape(self.layout.side, self.layout.planes)),
            *(torch.from_numpy(np.ascontiguousarray(column, dtype=np.float32)) for column in columns),
        )

    def _last_rows(self, rows: NDArray[np.int64], head: int, n_step: int) -> NDArray[np.int64]:
        """Return the rows at which the n-th steps arrive, or the last ones of their episodes that lie below ``head``.

        An episode that was broken off ends where another one's first row follows.
        """
        last = rows
        for _ in range(n_step - 1):
            here, after = self._ring.rows_at(np.stack((last, last + 1)) % self.capacity)
            follows = (last + 1 < head) & (after["episode_step"] == here["episode_step"] + 1)
            goes_on = follows & (here["terminated"] == 0) & (here["truncated"] == 0)
            last = last + goes_on
        return last

    def _return(self, rows: NDArray[np.int64], last: NDArray[np.int64], n_step: int, gamma: float) -> NDArray[Any]:
        """Return Σ γᵏ rₖ over the steps that arrive at ``rows`` to ``last``, (B,)."""
        steps = np.arange(n_step)
        rewards = self._ring.rows["reward"][(rows[:, None] + steps) % self.capacity]
        summed: NDArray[Any] = np.where(steps <= (last - rows)[:, None], rewards * gamma**steps, 0).sum(axis=1)
        return summed

    def _step(self, row: int) -> int:
        return int(self._ring.rows["step"][row % self.capacity])

    def _episode_steps(self, rows: Any) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._ring.rows["episode_step"][rows % self.capacity].astype(np.int64)
        return found

    def _write(
        self, row: int, frame: NDArray[np.uint8], values: tuple[Any, ...], privileged: NDArray[np.float32] | None
    ) -> None:
        slot, found = row % self.capacity, 0 if privileged is None else len(privileged)
        if found != self.layout.privileged:
            raise ValueError(f"{found} privileged numbers for a replay of {self.layout.privileged}")
        self._ring.frames[slot] = self._stack.cells(frame).reshape(-1)
        self._ring.rows[slot] = (*values, privileged) if found else values


def _waits_for_disk() -> int:
    """Return how often this thread ever had to wait for a page to be read."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
