"""A pool's memory over time as stacked layers, thinned so that every extreme stays. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from carla_launcher.show.timeline import FOREIGN_REST, UNNAMED, Sample, highest, parts

COLUMNS = 240
GAP_S = 120.0
"""A longer time without a sample, and longer than five usual intervals, is a gap."""


@dataclass(frozen=True)
class Layer:
    """An owner, and its colour on the page."""

    name: str
    colour: str


@dataclass(frozen=True)
class Stack:
    """A pool's layers, lowest first, with their values.

    Attributes:
        runs: stretches without a gap; each a list of (time, top of each layer).
        limit: the pool's total, MiB.
    """

    layers: tuple[Layer, ...]
    runs: tuple[list[tuple[float, tuple[float, ...]]], ...]
    limit: float


def stacked(samples: Sequence[Sample], column_of: Callable[[float], int], thinned_s: float = 0.0) -> Stack | None:
    """Return a pool's layers; None if its total was never known.

    Args:
        samples: in order of time.
        column_of: returns the column of a time; a column keeps at most two samples per layer, and two for free memory.
        thinned_s: a time up to this one is no gap, since samples in it were left out.
    """
    known = [sample for sample in samples if sample.total is not None and sample.free is not None]
    if not known:
        return None
    layers, amounts = _layers(known)
    runs = []
    for part in _unbroken(known, thinned_s):
        heights = [amounts(sample) for sample in part]
        kept = extremes([*zip(*heights, strict=True)], [column_of(sample.time_s) for sample in part])
        runs.append([(part[index].time_s, tuple(accumulate(heights[index]))) for index in kept])
    return Stack(layers, tuple(runs), max(sample.total or 0.0 for sample in known))


def extremes(series: Sequence[Sequence[float]], columns: Sequence[int]) -> list[int]:
    """Return the indices to keep, in order: both ends, and each column's lowest and highest value of every series.

    Args:
        series: rows with one value per entry of ``columns``.
        columns: the column of each value, never falling.
    """
    sums = [sum(values[index] for values in series) for index in range(len(columns))]
    kept = {0, len(columns) - 1} if columns else set()
    start = 0
    for end in range(1, len(columns) + 1):
        if end == len(columns) or columns[end] != columns[start]:
            part = range(start, end)
            for values in (*series, sums):
                kept |= {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
            start = end
    return sorted(kept)


def _layers(samples: Sequence[Sample]) -> tuple[tuple[Layer, ...], Callable[[Sample], list[float]]]:
    """Return the layers that aren't empty, and a function that returns a sample's amounts in their order."""
    shown = parts(highest(samples), max(sample.unnamed for sample in samples))
    rest = [part.name for part in shown if part.colour == FOREIGN_REST]
    unnamed = [Layer(part.name, part.colour) for part in shown if part.colour == UNNAMED]
    named = [Layer(part.name, part.colour) for part in shown if part.colour not in (FOREIGN_REST, UNNAMED)]
    together = [Layer(f"{len(rest)} others", FOREIGN_REST)] if rest else []

    def amounts(sample: Sample) -> list[float]:
        found = [sample.owners.get(layer.name, 0.0) for layer in named]
        found += [sum(sample.owners.get(name, 0.0) for name in rest) for _ in together]
        return [*found, *(sample.unnamed for _ in unnamed)]

    return (*named, *together, *unnamed), amounts


def _unbroken(samples: Sequence[Sample], thinned_s: float) -> list[Sequence[Sample]]:
    """Return the stretches without a gap."""
    steps = sorted(later.time_s - sample.time_s for sample, later in pairwise(samples))
    gap_s = max(GAP_S, thinned_s, 5 * steps[len(steps) // 2] if steps else 0.0)
    cuts = [n for n in range(1, len(samples)) if samples[n].time_s - samples[n - 1].time_s > gap_s]
    return [samples[start:end] for start, end in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
