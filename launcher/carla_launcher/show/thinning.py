"""Keeps the time series of a long run bounded: of many rows, those that charts, peaks and incidents need. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from carla_launcher.show.layers import GAP_S, extremes
from carla_launcher.show.timeline import AFTER_S, BEFORE_S, OURS, Moment, Row, Sample, Timeline, moment_of, timeline_of

MOST_ROWS = 20_000
"""Rows that are kept as they are: 55 hours with a row each 10 s."""
PARTS = 300
"""Parts into which more rows are divided; each keeps its ends and its extremes."""


class Thinned:
    """Takes the rows of ``launcher-memory.jsonl`` in order, and keeps a bounded number of them.

    Args:
        most_rows: rows from which on they are thinned.
        parts: into which they are divided then.
    """

    def __init__(self, most_rows: int = MOST_ROWS, parts: int = PARTS) -> None:
        self._most_rows = self._due = most_rows
        self._parts = parts
        self._moments: list[Moment] = []
        self._thinned_s = 0.0

    def add(self, rows: Iterable[Row], about_s: Sequence[float]) -> None:
        """Add rows.

        Args:
            rows: without a valid time they are left out.
            about_s: times of the launcher's events; the least free memory about each is kept.
        """
        for row in rows:
            if (moment := moment_of(row)) is not None:
                self._moments.append(moment)
                if len(self._moments) > self._due:
                    self._thin(about_s)
        self._moments.sort(key=lambda each: each.time_s)

    @property
    def timeline(self) -> Timeline:
        """Return the time series of the rows that are kept."""
        return timeline_of(self._moments, self._thinned_s)

    def _thin(self, about_s: Sequence[float]) -> None:
        self._moments.sort(key=lambda each: each.time_s)
        moments = self._moments
        kept = sorted(_needed(moments, self._parts, about_s))
        apart_s = (moments[b].time_s - moments[a].time_s for a, b in pairwise(kept) if b - a > 1)
        self._thinned_s = max([self._thinned_s, *apart_s])
        self._moments = [moments[index] for index in kept]
        self._due = max(self._most_rows, 2 * len(kept))


def _needed(moments: Sequence[Moment], parts: int, about_s: Sequence[float]) -> set[int]:
    """Return the indices of the rows to keep."""
    columns = _columns(moments, parts)
    ends = {index for n in range(1, len(columns)) if columns[n] != columns[n - 1] for index in (n - 1, n)}
    steps = [index for index, each in enumerate(moments) if each.progress.step is not None]
    shown = extremes(_series(moments), columns)
    return {*shown, *ends, *steps[:1], *steps[-1:], *_peaks(moments), *_around(moments, about_s)}


def _columns(moments: Sequence[Moment], parts: int) -> list[int]:
    """Return the part of each row; none reaches over a gap."""
    size, gaps, columns = -(-len(moments) // parts), 0, []
    for index, each in enumerate(moments):
        gaps += index > 0 and each.time_s - moments[index - 1].time_s > GAP_S
        columns.append(index // size + gaps)
    return columns


def _series(moments: Sequence[Moment]) -> list[list[float]]:
    """Return each pool's free memory, that of each owner of this run, and that of all foreign processes."""
    series = []
    for pool in dict.fromkeys(name for each in moments for name in each.pools):
        samples = [each.pools.get(pool) for each in moments]
        series.append([0.0 if each is None else each.free or 0.0 for each in samples])
        series += [[0.0 if each is None else each.owners.get(name, 0.0) for each in samples] for name in OURS]
        series.append([0.0 if each is None else _foreign(each) for each in samples])
    return series


def _foreign(sample: Sample) -> float:
    return sum(mib for name, mib in sample.owners.items() if name not in OURS)


def _peaks(moments: Sequence[Moment]) -> Iterator[int]:
    """Yield the rows with the most that each owner, and all together, held in a pool and phase; each pool's last."""
    most: dict[Any, tuple[float, int]] = {}
    last: dict[str, int] = {}
    for index, each in enumerate(moments):
        for pool, sample in each.pools.items():
            last[pool] = index
            held: dict[Any, float] = {
                **sample.owners,
                ("all",): sum(sample.owners.values()),
                ("unnamed",): sample.unnamed,
            }
            for owner, mib in held.items():
                key = pool, each.progress.phase, owner
                if key not in most or mib > most[key][0]:
                    most[key] = mib, index
    yield from (index for _, index in most.values())
    yield from last.values()


def _around(moments: Sequence[Moment], about_s: Sequence[float]) -> Iterator[int]:
    """Yield, for each event, the last row before it, and the one with the least free memory of each pool about it."""
    times = [each.time_s for each in moments]
    before = {index for moment_s in about_s if (index := bisect_right(times, moment_s) - 1) >= 0}
    yield from before
    for moment_s in {*about_s, *(times[index] for index in before)}:
        start, last = bisect_left(times, moment_s - BEFORE_S), bisect_right(times, moment_s) - 1
        near = range(max(0, min(start, last)), bisect_right(times, moment_s + AFTER_S))
        for pool in {name for index in near for name in moments[index].pools}:
            free = {
                index: sample.free
                for index in near
                if (sample := moments[index].pools.get(pool)) is not None and sample.free is not None
            }
            if free:
                yield min(free, key=lambda index: free[index])
