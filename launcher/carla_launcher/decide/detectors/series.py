"""Time series: windows, medians, and a test for steady growth. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf, sqrt
from statistics import median

Point = tuple[float, float]
"""Seconds, MiB."""

BUCKETS = 12
"""Number of buckets in a window; the slope is fitted to their medians."""
QUARTERS = 4
STEADY_SHARE = 0.4
"""Least growth of a quarter of the window, as a share of the mean; below it the growth is a step, or it flattens."""
MAD_TO_SIGMA = 1.4826
MEDIAN_ERROR = 1.25
"""Standard error of a median relative to that of a mean."""


class Window:
    """The points of the last ``span_s`` seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._points: deque[Point] = deque()

    @property
    def points(self) -> Sequence[Point]:
        """Oldest first."""
        return self._points

    @property
    def covered_s(self) -> float:
        """From the oldest point to the newest."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    @property
    def middle(self) -> float:
        """The median; there must be a point."""
        return median(value for _, value in self._points)

    def add(self, time_s: float, value: float) -> None:
        """Add the newest point."""
        self._points.append((time_s, value))
        while self._points[0][0] < time_s - self._span_s:
            self._points.popleft()

    def clear(self) -> None:
        """Remove all points."""
        self._points.clear()


@dataclass(frozen=True)
class Growth:
    """A steady growth.

    Attributes:
        slope: MiB/s.
        limit_mib: further growth if the curve flattens on as it has so far; infinite if it doesn't flatten.
    """

    slope: float
    limit_mib: float


def steady_growth(points: Sequence[Point], window_s: float, least_mib: float) -> Growth | None:
    """Return the growth over the last ``window_s`` seconds if it is steady; otherwise None.

    Uses the Theil-Sen slope of bucket medians, which a quarter of outliers doesn't change. A single step isn't steady
    (``STEADY_SHARE``), and a value that was as high before isn't growth. Noise looks like a curve that flattens.

    Args:
        points: in order of time; they must fill the window, and may begin before it.
        window_s: length of the window, which ends at the newest point.
        least_mib: least growth over the window that counts.
    """
    width_s = window_s / BUCKETS
    buckets = _buckets(points, width_s)
    if not all(buckets):
        return None
    middles = [median(value for _, value in bucket) for bucket in buckets]
    steps = [b - a for a, b in pairwise(_quarters(middles))]
    if min(steps) < STEADY_SHARE * least_mib / QUARTERS:
        return None  # no slope that counts fits these: most windows end here
    slope = median((b - a) / ((j - i) * width_s) for (i, a), (j, b) in combinations(enumerate(middles), 2))
    grown_mib = slope * window_s
    if grown_mib < least_mib or min(steps) < STEADY_SHARE * grown_mib / QUARTERS:
        return None
    before = [value for time_s, value in points if time_s < buckets[0][0][0]]
    if max(before, default=0.0) >= middles[-1]:
        return None
    error_mib = _error(buckets, middles, slope, width_s)
    return Growth(slope, _still_to_come(steps, error_mib))


def _still_to_come(steps: Sequence[float], error_mib: float) -> float:
    """Return the sum of the steps that would follow if they shrink as these do, within the error."""
    ratio: float = (max(0.0, steps[-1] - error_mib) / (steps[0] + error_mib)) ** (1 / (len(steps) - 1))
    return steps[-1] * ratio / (1 - ratio) if ratio < 1 else inf


def _buckets(points: Sequence[Point], width_s: float) -> list[list[Point]]:
    buckets: list[list[Point]] = [[] for _ in range(BUCKETS)]
    newest_s = points[-1][0] if points else 0.0
    for time_s, value in points:
        age = int((newest_s - time_s) / width_s)
        if age < BUCKETS:
            buckets[BUCKETS - 1 - age].append((time_s, value))
    return buckets


def _quarters(middles: Sequence[float]) -> list[float]:
    size = BUCKETS // QUARTERS
    return [median(middles[size * quarter : size * (quarter + 1)]) for quarter in range(QUARTERS)]


def _error(buckets: Sequence[Sequence[Point]], middles: Sequence[float], slope: float, width_s: float) -> float:
    """Return a bucket's standard error, from the larger of two scatters about the line: of points or of buckets."""
    points = [value - slope * time_s for bucket in buckets for time_s, value in bucket]
    each = len(points) / BUCKETS
    among = _scatter([middle - slope * width_s * index for index, middle in enumerate(middles)])
    return MAD_TO_SIGMA * max(among, MEDIAN_ERROR * _scatter(points) / sqrt(each))


def _scatter(values: Sequence[float]) -> float:
    """Return the median distance from the median."""
    level = median(values)
    distance: float = median(abs(value - level) for value in values)
    return distance
