"""Reading of one ring: how many steps it holds, which rows may be drawn, and their transitions as a batch.

Owns the meaning of a row for a reader. Writes nothing, and draws nothing: ``sampling`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carla_td3.td3.replay.frames import ACTION, VECTOR, FrameStack
from carla_td3.td3.replay.layout import Layout, ReplayError
from carla_td3.td3.replay.ring import Ring

# Rows that the writer may be changing: an episode's first observation is published together with its first step.
IN_FLIGHT = 2
# Rows left out at the old end of a full ring: the writer may advance this far while a batch is read.
ADVANCE = 10


@dataclass(frozen=True)
class Batch:
    """B transitions from s to s', m steps later: 1, or with n-step returns up to n if the episode has as many.

    The first four frames of a row are the stack of s, its last four that of s'; for one step they share three.
    """

    frames: Tensor  # (B, 5, 21, 21, 16) uint8, or (B, 8, …); before an episode's start its first frame
    vector: Tensor  # (B, 53) float32, of s
    next_vector: Tensor  # (B, 53) float32, of s'
    action: Tensor  # (B, 2) float32 in [-1, 1]
    reward: Tensor  # (B,) float32, the sum of the m rewards, the k-th times γᵏ
    terminated: Tensor  # (B,) float32: 1 where s' is terminal; 0 also where a time limit ended the episode
    privileged: Tensor  # (B, P) float32, of s, never read by the actor; P is 0 if the replay holds none
    next_privileged: Tensor  # (B, P) float32, of s'
    discount: Tensor  # (B,) float32: γᵐ⁻¹, 1 for one step

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; the same tensors if they are already there."""
        return Batch(*(getattr(self, name).to(device, non_blocking=True) for name in self.__dataclass_fields__))

    @classmethod
    def empty(cls, rows: int, stack: FrameStack, n_step: int = 1, privileged: int = 0) -> Batch:
        """Return new memory for a batch; its numbers are arbitrary."""
        frames = torch.empty(rows, stack.frames + stack.new(n_step), *stack.frame_shape, dtype=torch.uint8)
        shapes = (VECTOR,), (VECTOR,), (ACTION,), (), (), (privileged,), (privileged,), ()
        return cls(frames, *(torch.empty(rows, *shape) for shape in shapes))

    def __len__(self) -> int:
        """Number of transitions, B."""
        return len(self.reward)

    def __getitem__(self, rows: slice) -> Batch:
        """Return some of the transitions, as views."""
        return Batch(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class Reader:
    """The reading end of one ring. Any number of processes read while one writes."""

    def __init__(self, ring: Ring, stack: FrameStack) -> None:
        self._ring = ring
        self._stack = replace(stack, side=ring.layout.side, planes=ring.layout.planes)

    @property
    def directory(self) -> Path:
        """Directory of the ring."""
        return self._ring.directory

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return self._ring.layout.capacity

    @property
    def layout(self) -> Layout:
        """Capacity, frame size, and first row."""
        return self._ring.layout

    @property
    def rows(self) -> int:
        """Rows ever published: one per transition and one per episode."""
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
        """Episodes ever begun: each has one row more than it has transitions."""
        return self.rows - self.steps

    def require_steps(self) -> None:
        """Refuse a replay that holds no transition.

        Raises:
            ReplayError: in one sentence.
        """
        if self.steps == 0:
            raise ReplayError(f"{self._ring.directory}: no transition to sample; collect some steps first.")

    def oldest(self, head: int) -> int:
        """Return the oldest row that is drawn if ``head`` is the row after the newest."""
        return max(self.layout.first, head - self.capacity + IN_FLIGHT + self._stack.reach + ADVANCE)

    def oldest_whole(self) -> int:
        """Return the oldest row whose frame window the writer can't be changing now."""
        return max(self.layout.first, self.rows - self.capacity + IN_FLIGHT + self._stack.reach)

    def head(self, until: int | None) -> int:
        """Return the row after the last that may be drawn, by bisection: step numbers grow with the rows."""
        high = self.rows
        if until is None or high == 0 or self._step(high - 1) <= until:
            return high
        low = self.oldest_whole()
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._step(middle) < until else (low, middle)
        return low + (self._step(low) == until)  # not the next episode's first row, which may not exist yet

    def has_transitions(self, oldest: int, head: int) -> bool:
        """Return whether any of the rows [oldest, head) is a transition."""
        return head > oldest and self._step(head - 1) != self._step(oldest) - (self.episode_steps(oldest) > 0)

    def episode_steps(self, rows: Any) -> NDArray[np.int64]:
        """Return each row's number of steps in its episode, 0 for first observations."""
        found: NDArray[np.int64] = self._ring.rows["episode_step"][rows % self.capacity].astype(np.int64)
        return found

    def empty_batch(self, rows: int, n_step: int) -> Batch:
        """Return new memory for a batch of this ring's transitions."""
        return Batch.empty(rows, self._stack, n_step, self.layout.privileged)

    def prefetch(self, rows: NDArray[np.int64]) -> None:
        """Ask the kernel to read the frames of these rows' transitions."""
        self._ring.fetch((rows - self._stack.reach) % self.capacity, self._stack.reach + 1 + IN_FLIGHT)

    def gather(self, rows: NDArray[np.int64], head: int, n_step: int, gamma: float, batch: Batch, at: int) -> None:
        """Write the transitions whose first steps arrive at these rows into a batch.

        Args:
            rows: numbers below ``head``.
            head: row after the last that may be read.
            n_step: as in ``sample``.
            gamma: as in ``sample``.
            batch: what is written.
            at: place of the first transition in it.
        """
        slots = rows % self.capacity
        held = self._ring.rows_at(slots[:, None] + np.arange(-1, n_step))
        before, arrivals = held[:, 0], held[:, 1:]
        later = _later_steps(arrivals, head - rows)
        last = self._ring.rows_at(slots + later)
        columns = {
            "vector": before["vector"],
            "next_vector": last["vector"],
            "action": arrivals["action"][:, 0],
            "reward": _returns(arrivals["reward"], later, gamma),
            "terminated": last["terminated"],
            "discount": gamma**later,
        }
        if self.layout.privileged:
            columns |= {"privileged": before["privileged"], "next_privileged": last["privileged"]}
        places = slice(at, at + len(rows))
        for name, column in columns.items():
            getattr(batch, name).numpy()[places] = column
        arrived = self._stack.arrived[-self._stack.new(n_step) :]
        stacks = slots[:, None] + self._stack.before, (slots + later)[:, None] + arrived
        first = slots - arrivals["episode_step"][:, 0]
        windows = np.maximum(np.concatenate(stacks, axis=1), first[:, None])
        frames = batch.frames.flatten(2).numpy()[places]
        np.take(self._ring.frames, windows, axis=0, out=frames, mode="wrap")  # "raise" would copy twice

    def _step(self, row: int) -> int:
        return int(self._ring.rows["step"][row % self.capacity])


def _later_steps(arrivals: NDArray[Any], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many steps of each transition follow its first, (B,): up to n-1, fewer at its episode's end.

    An aborted episode ends where the next one's first row follows.

    Args:
        arrivals: rows at which the steps would arrive, (B, n).
        room: how many of them may be read, (B,).
    """
    later = np.zeros(len(arrivals), np.int64)
    for number in range(1, arrivals.shape[1]):
        here, after = arrivals[:, number - 1], arrivals[:, number]
        follows = (number < room) & (after["episode_step"] == here["episode_step"] + 1)
        later += (later == number - 1) & follows & (here["terminated"] == 0) & (here["truncated"] == 0)
    return later


def _returns(rewards: NDArray[np.float32], later: NDArray[np.int64], gamma: float) -> NDArray[np.float64]:
    """Return Σ γᵏ rₖ over the first step and the ``later`` ones, (B,); rewards (B, n)."""
    steps = np.arange(rewards.shape[1])
    summed: NDArray[np.float64] = np.where(steps <= later[:, None], rewards * gamma**steps, 0).sum(axis=1)
    return summed
