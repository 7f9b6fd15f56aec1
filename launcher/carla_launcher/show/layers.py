"""A pool's course as layers to be stacked, thinned so that every extreme stays. Pure: samples in, numbers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from carla_launcher.show.timeline import OURS, Sample

FOREIGN_DRAWN = 4
COLUMNS = 240
GAP_S = 120.0
"""Without a line for longer than this, and than five usual intervals, the launcher didn't look."""


@dataclass(frozen=True)
class Layer:
    """Who, and the page's colour for it."""

    name: str
    colour: str


@dataclass(frozen=True)
class Stack:
    """A pool's layers, lowest first, and what is drawn of them.

    Attributes:
        runs: unbroken stretches; each a list of (time, top of each layer).
        limit: the pool's total, MiB.
    """

    layers: tuple[Layer, ...]
    runs: tuple[list[tuple[float, tuple[float, ...]]], ...]
    limit: float


def stacked(samples: Sequence[Sample], column_of: Callable[[float], int]) -> Stack | None:
    """Return a pool's layers; None where its total was never known.

    Args:
        samples: in order of time.
        column_of: the column of a moment; each keeps at most two samples a layer, and two for what is free.
    """
    known = [sample for sample in samples if sample.total is not None and sample.free is not None]
    if not known:
        return None
    layers, amounts = _layers(known)
    runs = []
    for part in _unbroken(known):
        heights = [amounts(sample) for sample in part]
        kept = extremes([*zip(*heights, strict=True)], [column_of(sample.time_s) for sample in part])
        runs.append([(part[index].time_s, tuple(accumulate(heights[index]))) for index in kept])
    return Stack(layers, tuple(runs), max(sample.total or 0.0 for sample in known))


def extremes(series: Sequence[Sequence[float]], columns: Sequence[int]) -> list[int]:
    """Return the indices to keep, in order: the ends, and each column's lowest and highest of every series and of all.

    Args:
        series: some rows of as many values as there are columns given.
        columns: of each value, never falling.
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
    """Return the layers that have anything to show, and what gives a sample's amounts in their order."""
    peaks: dict[str, float] = {}
    for sample in samples:
        for name, mib in sample.owners.items():
            peaks[name] = max(peaks.get(name, 0.0), mib)
    ours = [name for name in OURS if name in peaks]
    others = sorted((name for name in peaks if name not in OURS), key=lambda name: -peaks[name])
    named, rest = others[:FOREIGN_DRAWN], others[FOREIGN_DRAWN:]
    layers = [Layer(name, name) for name in ours]
    layers += [Layer(name, f"foreign-{count}") for count, name in enumerate(named, 1)]
    layers += [Layer(f"{len(rest)} others", "foreign-rest")] if rest else []
    unnamed = any(sample.unnamed >= 1 for sample in samples)
    layers += [Layer("unattributed", "unnamed")] if unnamed else []

    def amounts(sample: Sample) -> list[float]:
        owners = sample.owners
        found = [owners.get(name, 0.0) for name in (*ours, *named)]
        found += [sum(owners.get(name, 0.0) for name in rest)] if rest else []
        return [*found, sample.unnamed] if unnamed else found

    return tuple(layers), amounts


def _unbroken(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    """Return the stretches without such a gap."""
    steps = sorted(later.time_s - sample.time_s for sample, later in pairwise(samples))
    gap_s = max(GAP_S, 5 * steps[len(steps) // 2]) if steps else GAP_S
    cuts = [n for n in range(1, len(samples)) if samples[n].time_s - samples[n - 1].time_s > gap_s]
    return [samples[start:end] for start, end in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
