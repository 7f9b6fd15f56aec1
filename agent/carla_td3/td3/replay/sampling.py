"""How a batch is drawn: uniformly over the transitions of one ring, or of several as one.

Owns the draw, its repetition where a writer came round meanwhile, what is fetched ahead, and how long a ring is held
whose collector is gone. What a row means is ``reader``'s.
"""

from __future__ import annotations

import resource
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carla_td3.td3.replay.layout import ReplayError
from carla_td3.td3.replay.reader import Batch, Reader

# Batches that are fetched ahead after one that had to wait for the disk; then one isn't, to see whether it still must.
_FETCHED_AHEAD = 1_000


@dataclass(frozen=True)
class _Window:
    """The rows [oldest, head) of a ring, of which those may be drawn that a transition arrives at."""

    ring: Reader
    whole: int
    """The oldest row that the writer couldn't be changing when this was made."""
    since: int
    """Older ones aren't drawn, whole or not."""
    head: int

    @property
    def oldest(self) -> int:
        return max(self.since, self.whole)

    @property
    def rows(self) -> int:
        """How many; 0 where no transition arrives at any."""
        return self.head - self.oldest if self.ring.has_transitions(self.oldest, self.head) else 0

    @property
    def overtaken(self) -> bool:
        """Whether there is nothing to draw because the writer has come round since."""
        return self.whole < self.head <= self.ring.oldest_whole()


class Source(ABC):
    """What batches are drawn from, uniformly over all transitions: one ring, or several as one."""

    def __init__(self) -> None:
        self._frames_out: dict[int, NDArray[np.uint8]] = {}  # a page fault for each fresh 4 KiB would double the time
        self._to_fetch = 0  # batches

    @property
    @abstractmethod
    def steps(self) -> int:
        """Finished transitions ever written."""

    @property
    @abstractmethod
    def _rings(self) -> Sequence[Reader]:
        """The rings, one at least."""

    def sample(
        self, batch: int, rng: np.random.Generator, until: int | None = None, n_step: int = 1, gamma: float = 1.0
    ) -> Batch:
        """Draw transitions uniformly, with replacement.

        Args:
            batch: how many, B.
            rng: the only source of chance: the same state and the same rows give the same batch.
            until: draw from the first so many transitions ever written to a ring (of those still held); None: from
                all. The batch then does not depend on what a writer, up to 10 rows ahead, has added since.
            n_step: rewards to sum, at most: fewer where the episode ended, by whatever, or has come no further yet.
            gamma: discount of each reward after the first.

        Returns:
            The batch on the CPU. Its ``frames`` are overwritten by the next call with the same B.

        Raises:
            ReplayError: there is nothing to draw from.
        """
        since = [ring.oldest(ring.head(until)) for ring in self._rings]
        waits = _waits_for_disk()
        while True:
            windows = self._windows(since, until)
            drawn = self._draw(windows, batch, rng)
            if drawn is not None:
                result = self._gathered(drawn, n_step, gamma)
                if all(rows.min() >= window.ring.oldest_whole() for window, rows in drawn):
                    self._to_fetch = _FETCHED_AHEAD if _waits_for_disk() > waits else max(0, self._to_fetch - 1)
                    return result
            elif not any(window.overtaken for window in windows):
                raise ReplayError(f"{self._rings[0].directory}: no transition to sample; collect some steps first.")
            # The writer came round while this process was held up: what was read may be torn.
            since = [ring.oldest(ring.rows) for ring in self._rings]

    def fetch(self, batch: int, rng: np.random.Generator) -> None:
        """Have the frames read that ``sample`` will draw with the same arguments; does nothing for a ring in memory.

        A hint: no batch depends on it. Rows that the writer adds meanwhile shift what is drawn by about as many.
        """
        if self._to_fetch:
            windows = self._windows([ring.oldest(ring.rows) for ring in self._rings], None)
            for window, rows in self._draw(windows, batch, rng) or ():
                window.ring.prefetch(rows)

    def _windows(self, since: Sequence[int], until: int | None) -> list[_Window]:
        # Whole first and the head after it: a writer that comes round between the two only adds rows.
        return [
            _Window(ring, ring.oldest_whole(), oldest, ring.head(until))
            for ring, oldest in zip(self._rings, since, strict=True)
        ]

    def _draw(
        self, windows: Sequence[_Window], batch: int, rng: np.random.Generator
    ) -> list[tuple[_Window, NDArray[np.int64]]] | None:
        """Return rows that a transition arrives at, by ring; None: there is none.

        Drawn from the windows laid end to end; first observations are drawn again, from all of them.
        """
        ends = np.cumsum([window.rows for window in windows])
        if not ends[-1]:
            return None
        places = rng.integers(0, ends[-1], batch)
        first = np.empty(batch, bool)
        while True:
            for window, here, rows in _split(windows, ends, places):
                first[here] = window.ring.episode_steps(rows) == 0
            if not first.any():
                return [(window, rows) for window, _, rows in _split(windows, ends, places) if len(rows)]
            places[first] = rng.integers(0, ends[-1], int(first.sum()))

    def _gathered(self, drawn: Sequence[tuple[_Window, NDArray[np.int64]]], n_step: int, gamma: float) -> Batch:
        """Return the transitions of all rings in one batch, ring after ring."""
        window = self._rings[0].frames_in_row(n_step)
        count = window * sum(len(rows) for _, rows in drawn)
        if count not in self._frames_out:
            self._frames_out[count] = np.empty((count, self._rings[0].layout.frame_bytes), dtype=np.uint8)
        frames, parts, begin = self._frames_out[count], [], 0
        for source, rows in drawn:
            end = begin + window * len(rows)
            parts.append(source.ring.gather(rows, source.head, n_step, gamma, frames[begin:end]))
            begin = end
        if len(parts) == 1:
            return parts[0]
        shape = parts[0].frames.shape[1:]
        small = [replace(part, frames=part.frames[:, :0]) for part in parts]  # the frames lie in one piece already
        return replace(Batch.joined(small), frames=torch.from_numpy(frames).view(-1, *shape))


def _split(
    windows: Sequence[_Window], ends: NDArray[np.int64], places: NDArray[np.int64]
) -> Iterator[tuple[_Window, Any, NDArray[np.int64]]]:
    """Yield each window, which places lie in it, and their rows, in their order."""
    if len(windows) == 1:
        yield windows[0], slice(None), places + windows[0].oldest
        return
    ring = np.searchsorted(ends, places, side="right")
    for number, window in enumerate(windows):
        here = ring == number
        yield window, here, places[here] - ends[number] + window.head


class Rings(Source):
    """All rings of a run.

    Args:
        written: those that have a writer.
        gone: those whose collectors are gone. Of them the newest rows are held, as many as ``capacity`` leaves room for
            beside the others': what these gain, those lose at their old ends.
        capacity: rows in all.
    """

    def __init__(self, written: Sequence[Reader], gone: Sequence[Reader] = (), capacity: int = 0) -> None:
        super().__init__()
        self._written, self._gone, self._capacity = tuple(written), tuple(gone), capacity

    @property
    def _rings(self) -> Sequence[Reader]:
        return (*self._written, *self._gone)

    @property
    def steps(self) -> int:
        """Finished transitions ever written, to all of them."""
        return sum(ring.steps for ring in self._rings)

    def held(self) -> list[int]:
        """Return how many of the newest rows are held of each ring whose collector is gone."""
        room, sizes = self._capacity - sum(ring.size for ring in self._written), [ring.size for ring in self._gone]
        share = min(1.0, max(0, room) / max(1, sum(sizes)))
        return [int(share * size) for size in sizes]

    def _windows(self, since: Sequence[int], until: int | None) -> list[_Window]:
        windows, count = super()._windows(since, until), len(self._written)
        newest = [
            replace(window, since=max(window.since, window.head - rows))
            for window, rows in zip(windows[count:], self.held(), strict=True)
        ]
        return [*windows[:count], *newest]


def _waits_for_disk() -> int:
    """Return how often this thread ever had to wait for a page to be read."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
