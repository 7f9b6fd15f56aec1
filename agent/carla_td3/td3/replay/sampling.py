"""Draws batches uniformly over the transitions of one ring, or of several.

Owns the draw, its repetition if the writer overwrote rows meanwhile, the read-ahead, and how many rows of a removed
collector's ring are kept. ``reader`` knows what a row means.
"""

from __future__ import annotations

import resource
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.td3.replay.layout import ReplayError
from carla_td3.td3.replay.reader import Batch, Reader

# After a batch that had to wait for the disk, this many are fetched ahead; then one isn't, to check whether it must be.
_FETCHED_AHEAD = 1_000


@dataclass(frozen=True)
class _Window:
    """The rows [oldest, head) of a ring; the transitions among them may be drawn."""

    ring: Reader
    whole: int
    """The oldest row that the writer couldn't be changing when this was made."""
    since: int
    """Older rows aren't drawn."""
    head: int

    @property
    def oldest(self) -> int:
        return max(self.since, self.whole)

    @property
    def rows(self) -> int:
        """Number of rows; 0 if none is a transition."""
        return self.head - self.oldest if self.ring.has_transitions(self.oldest, self.head) else 0

    @property
    def overtaken(self) -> bool:
        """Whether nothing is left to draw because the writer has overwritten the rows since."""
        return self.whole < self.head <= self.ring.oldest_whole()


class Source(ABC):
    """Source of batches, drawn uniformly over all transitions of one ring or several."""

    def __init__(self) -> None:
        self._to_fetch = 0  # batches

    @property
    @abstractmethod
    def steps(self) -> int:
        """Finished transitions ever written."""

    @property
    @abstractmethod
    def _rings(self) -> Sequence[Reader]:
        """The rings, at least one."""

    def sample(
        self,
        batch: int,
        rng: np.random.Generator,
        until: int | None = None,
        n_step: int = 1,
        gamma: float = 1.0,
        into: Batch | None = None,
    ) -> Batch:
        """Draw transitions uniformly, with replacement.

        Args:
            batch: how many, B.
            rng: the only source of randomness: the same state and the same rows give the same batch.
            until: draw only from the first ``until`` transitions ever written to a ring (those still held), so that the
                batch doesn't depend on rows that a writer, up to 10 rows ahead, has added since. None: from all.
            n_step: most rewards to sum: fewer if the episode ended, in any way, or isn't that long yet.
            gamma: discount of each reward after the first.
            into: B transitions to overwrite; page faults of new memory would double the time.

        Returns:
            ``into``, or a new batch on the CPU.

        Raises:
            ReplayError: there is nothing to draw from.
        """
        into = self._rings[0].empty_batch(batch, n_step) if into is None else into
        since = [ring.oldest(ring.head(until)) for ring in self._rings]
        waits = _waits_for_disk()
        while True:
            windows = self._windows(since, until)
            drawn = self._draw(windows, batch, rng)
            if drawn is not None:
                at = 0
                for window, rows in drawn:
                    window.ring.gather(rows, window.head, n_step, gamma, into, at)
                    at += len(rows)
                if all(rows.min() >= window.ring.oldest_whole() for window, rows in drawn):
                    self._to_fetch = _FETCHED_AHEAD if _waits_for_disk() > waits else max(0, self._to_fetch - 1)
                    return into
            elif not any(window.overtaken for window in windows):
                raise ReplayError(f"{self._rings[0].directory}: no transition to sample; collect some steps first.")
            # The writer overtook this process while it was held up: the rows read may be torn.
            since = [ring.oldest(ring.rows) for ring in self._rings]

    def fetch(self, batch: int, rng: np.random.Generator) -> None:
        """Ask the kernel to read the frames that ``sample`` will draw with the same arguments; no effect for a ring in
        memory.

        Only a hint: no batch depends on it. Rows that the writer adds meanwhile shift the draw by about as many.
        """
        if self._to_fetch:
            windows = self._windows([ring.oldest(ring.rows) for ring in self._rings], None)
            for window, rows in self._draw(windows, batch, rng) or ():
                window.ring.prefetch(rows)

    def _windows(self, since: Sequence[int], until: int | None) -> list[_Window]:
        # First the oldest whole row, then the head: if the writer advances between the two, that only adds rows.
        return [
            _Window(ring, ring.oldest_whole(), oldest, ring.head(until))
            for ring, oldest in zip(self._rings, since, strict=True)
        ]

    def _draw(
        self, windows: Sequence[_Window], batch: int, rng: np.random.Generator
    ) -> list[tuple[_Window, NDArray[np.int64]]] | None:
        """Return drawn rows by ring, each a transition; None if there is none.

        They are drawn from the windows joined; a first observation is drawn again, from all windows.
        """
        ends = list(accumulate(window.rows for window in windows))
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


def _split(
    windows: Sequence[_Window], ends: Sequence[int], places: NDArray[np.int64]
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
        written: rings with a writer.
        gone: rings of removed collectors. Of their newest rows, as many are kept as ``capacity`` leaves room for beside
            the others; as those grow, these lose their oldest rows.
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
        """Finished transitions ever written, to all rings."""
        return sum(ring.steps for ring in self._rings)

    def held(self) -> list[int]:
        """Return how many of the newest rows are kept of each removed collector's ring."""
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
    """Return how often this thread has had to wait for a page to be read."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
