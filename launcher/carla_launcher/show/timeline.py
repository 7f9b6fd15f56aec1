"""``launcher-memory.jsonl`` as courses: who held what of each pool, and how far training had come, at every moment.

Pure: rows in, plain data out, in order of time; values of another kind are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carla_launcher.observe.pools import OwnerKind
from carla_run.readers import inner, number

OURS = tuple(kind.value for kind in OwnerKind if kind is not OwnerKind.FOREIGN)
"""Owners that are this run's; every other name is a foreign process's."""
DRIVES = ("warming", "collecting", "updating")
"""Phases of an agent in which steps or updates are to grow."""

Row = Mapping[str, Any]


class Sample(NamedTuple):
    """One pool at one moment, MiB."""

    time_s: float
    total: float | None
    free: float | None
    owners: Mapping[str, float]

    @property
    def unnamed(self) -> float:
        """What is taken and no process is known to hold."""
        if self.total is None or self.free is None:
            return 0.0
        return max(0.0, self.total - self.free - sum(self.owners.values()))


class Progress(NamedTuple):
    """How far training had come at one moment; None where no file says."""

    time_s: float
    phase: str
    step: float | None
    updates: float | None
    taken: tuple[str, ...]


@dataclass
class Timeline:
    """A run's rows: ``pools`` by name, ``progress`` with one entry a row."""

    pools: dict[str, list[Sample]] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)

    def tightest(self, pool: str, moment_s: float, before_s: float, after_s: float) -> Sample | None:
        """Return the sample with the least free memory about a moment, the last one before it always among them."""
        samples = self.pools.get(pool, [])
        start = bisect_left(samples, moment_s - before_s, key=lambda sample: sample.time_s)
        last = bisect_right(samples, moment_s, key=lambda sample: sample.time_s)
        end = bisect_right(samples, moment_s + after_s, key=lambda sample: sample.time_s)
        known = [sample for sample in samples[max(0, min(start, last - 1)) : end] if sample.free is not None]
        return min(known, key=lambda sample: sample.free or 0.0, default=None)

    def until(self, moment_s: float) -> int:
        """Return how many entries of ``progress`` there are up to a moment."""
        return bisect_right(self.progress, moment_s, key=lambda each: each.time_s)

    def backwards(self, moment_s: float) -> Iterator[Progress]:
        """Yield the progress up to a moment, the last one first."""
        return (self.progress[index] for index in range(self.until(moment_s) - 1, -1, -1))

    def after(self, moment_s: float) -> Iterator[Progress]:
        """Yield the progress from a moment on."""
        return (self.progress[index] for index in range(self.until(moment_s), len(self.progress)))


def read(rows: Iterable[Row]) -> Timeline:
    """Return the courses of all rows that have a time."""
    timeline = Timeline()
    timed = [(time_s, row) for row in rows if (time_s := number(row.get("time"))) is not None]
    for time_s, row in sorted(timed, key=lambda entry: entry[0]):
        timeline.progress.append(_progress(time_s, row))
        for name, pool in inner(row, "pools").items():
            if isinstance(pool, dict):
                timeline.pools.setdefault(name, []).append(_sample(time_s, pool))
    return timeline


def _sample(time_s: float, pool: Row) -> Sample:
    held = {name: number(mib) for name, mib in inner(pool, "owners").items()}
    owners = {name: mib for name, mib in held.items() if mib is not None and mib > 0}
    return Sample(time_s, _amount(pool.get("total")), _amount(pool.get("free")), owners)


def _amount(value: Any) -> float | None:
    found = number(value)
    return None if found is None or found < 0 else found


def _progress(time_s: float, row: Row) -> Progress:
    taken = row.get("taken")
    steps = tuple(str(each) for each in taken) if isinstance(taken, list) else ()
    phase = row.get("phase")
    return Progress(
        time_s, phase if isinstance(phase, str) else "", number(row.get("step")), number(row.get("updates")), steps
    )
