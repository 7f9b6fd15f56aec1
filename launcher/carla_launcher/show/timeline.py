"""Reads ``launcher-memory.jsonl`` as time series: each owner's memory in each pool, and training's progress.

Pure. The result is in order of time; invalid values are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carla_launcher.observe.pools import OwnerKind
from carla_run.readers import inner, number

OURS = tuple(kind.value for kind in OwnerKind if kind is not OwnerKind.FOREIGN)
"""Owners of this run; every other name is a foreign process."""
FOREIGN_COLOURS = ("foreign-1", "foreign-2", "foreign-3", "foreign-4")
FOREIGN_REST, UNNAMED = "foreign-rest", "unnamed"
"""Colours of the largest foreign processes, of the other ones, and of memory without a known process."""
BEFORE_S, AFTER_S = 15.0, 1.5
"""Time before and after an incident's beginning in which to look for the moment with the least free memory."""

Row = Mapping[str, Any]
Spans = Sequence[tuple[float, float]]
"""From and until, seconds since 1970."""


class Sample(NamedTuple):
    """One pool at one moment, MiB."""

    time_s: float
    total: float | None
    free: float | None
    owners: Mapping[str, float]

    @property
    def unnamed(self) -> float:
        """Used memory without a known process."""
        if self.total is None or self.free is None:
            return 0.0
        return max(0.0, self.total - self.free - sum(self.owners.values()))


class Part(NamedTuple):
    """One owner's part of a pool in MiB, and its colour on the page."""

    name: str
    mib: float
    colour: str


def parts(owners: Mapping[str, float], unnamed: float) -> list[Part]:
    """Return this run's programs, foreign processes by size, and memory without a known process."""
    ours = [Part(name, owners[name], name) for name in OURS if name in owners]
    names = sorted((name for name in owners if name not in OURS), key=lambda name: -owners[name])
    colours = [*FOREIGN_COLOURS, *[FOREIGN_REST] * len(names)]
    foreign = [Part(name, owners[name], colour) for name, colour in zip(names, colours, strict=False)]
    return [*ours, *foreign, *([Part("unattributed", unnamed, UNNAMED)] if unnamed >= 1 else [])]


def highest(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the peak of each owner."""
    most: dict[str, float] = {}
    for sample in samples:
        for name, mib in sample.owners.items():
            most[name] = max(most.get(name, 0.0), mib)
    return most


class Progress(NamedTuple):
    """Training's progress at one moment; None if unknown."""

    time_s: float
    phase: str
    step: float | None


class Moment(NamedTuple):
    """A row of ``launcher-memory.jsonl``: training's progress, and the pools by name."""

    progress: Progress
    pools: Mapping[str, Sample]

    @property
    def time_s(self) -> float:
        """Seconds since 1970."""
        return self.progress.time_s


@dataclass
class Timeline:
    """A run's time series.

    Attributes:
        pools: samples by pool.
        progress: one entry per row.
        thinned_s: the longest time between two rows of which rows were left out; 0 if none were.
    """

    pools: dict[str, list[Sample]] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    thinned_s: float = 0.0

    @property
    def steps(self) -> list[float]:
        """All known steps, in order of time."""
        return [each.step for each in self.progress if each.step is not None]

    def tightest(self, pool: str, moment_s: float, before_s: float, after_s: float) -> Sample | None:
        """Return the sample with the least free memory about a moment; the last one before it always counts."""
        samples = self.pools.get(pool, [])
        start = bisect_left(samples, moment_s - before_s, key=lambda sample: sample.time_s)
        last = bisect_right(samples, moment_s, key=lambda sample: sample.time_s)
        end = bisect_right(samples, moment_s + after_s, key=lambda sample: sample.time_s)
        known = [sample for sample in samples[max(0, min(start, last - 1)) : end] if sample.free is not None]
        return min(known, key=lambda sample: sample.free or 0.0, default=None)


def moment_of(row: Row) -> Moment | None:
    """Return a row as a moment; None without a valid time."""
    time_s, phase = number(row.get("time")), row.get("phase")
    if time_s is None:
        return None
    pools = {name: sample_of(time_s, pool) for name, pool in inner(row, "pools").items() if isinstance(pool, dict)}
    return Moment(Progress(time_s, phase if isinstance(phase, str) else "", number(row.get("step"))), pools)


def timeline_of(moments: Iterable[Moment], thinned_s: float = 0.0) -> Timeline:
    """Return the time series of moments in order of time."""
    timeline = Timeline(thinned_s=thinned_s)
    for each in moments:
        timeline.progress.append(each.progress)
        for name, sample in each.pools.items():
            timeline.pools.setdefault(name, []).append(sample)
    return timeline


def sample_of(time_s: float, pool: Row) -> Sample:
    """Return a pool of ``launcher-memory.jsonl`` at a moment."""
    held = {name: number(mib) for name, mib in inner(pool, "owners").items()}
    owners = {name: mib for name, mib in held.items() if mib is not None and mib > 0}
    return Sample(time_s, _amount(pool.get("total")), _amount(pool.get("free")), owners)


def _amount(value: Any) -> float | None:
    found = number(value)
    return None if found is None or found < 0 else found


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, with overlapping ones merged."""
    merged: list[tuple[float, float]] = []
    for from_s, until_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until_s))
        else:
            merged.append((from_s, until_s))
    return merged


def spans_s(spans: Spans) -> float:
    """Return the total length of spans."""
    return sum(until_s - from_s for from_s, until_s in spans)
