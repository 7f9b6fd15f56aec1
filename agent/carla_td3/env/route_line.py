"""A route as arrays: the line to follow, its tangent, curvature and lane width by arc length, and projection onto it.

Pure geometry in CARLA's frame (x forward, y right, yaw clockwise from above, metres and radians). Owns no map and no
simulator; ``route.Planner`` makes routes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carla_run.exits import Exit, ExitError

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)

RESOLUTION_M = 1.0
# How far a projection may move from its hint: more than a car drives in a step, less than a loop of the route.
WINDOW_BACK_M, WINDOW_AHEAD_M = 6.0, 9.0
SMOOTHING_POINTS = 3
LEAST_HALF_LANE_M = 0.5
"""A turning lane may begin with no width, and distances from the line are divided by it."""


class RouteError(ExitError):
    """No such route; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


class OtherMap(RouteError):  # noqa: N818 (a state of the simulator)
    """The route is of another map than the simulator has."""


@dataclass(frozen=True)
class Projection:
    """Where a point lies relative to a route."""

    s_m: float
    """Arc length of the nearest point of the line."""
    lateral_m: float
    """Signed distance from the line, positive to the right of travel."""
    yaw: float
    """The line's heading there, radians, not wrapped."""
    half_lane_m: float
    """Half the lane's width there."""


@dataclass(frozen=True, eq=False)
class Route:
    """A line of n points about ``RESOLUTION_M`` apart; point i is at arc length ``s[i]``."""

    name: str
    """Start and end as stable text; names the route in tables and decides its split."""
    points: FloatArray
    """(n, 2) metres."""
    s: FloatArray
    """(n,) metres, from 0."""
    yaw: FloatArray
    """(n,) radians, unwrapped: neighbours differ by less than π."""
    curvature: FloatArray
    """(n,) 1/m, positive turns right."""
    half_lane: FloatArray
    """(n,) metres."""
    start_z_m: float
    """Height of the road at the start."""
    turns: int
    """Junctions at which the heading changes by more than 45°."""
    junction: NDArray[np.bool_]
    """(n,) whether the point lies in a junction."""
    map: str = ""
    """Name of its map; empty if unknown."""

    @classmethod
    def through(
        cls,
        name: str,
        line: FloatArray,
        half_lane: FloatArray,
        turns: int,
        junction: NDArray[np.bool_] | None = None,
        map: str = "",
    ) -> Route:
        """Return the route along ``line`` (n, 3), resampled evenly and smoothed over lane seams.

        Args:
            half_lane: (n,) metres; where a lane begins with no width, ``LEAST_HALF_LANE_M`` counts.
            junction: (n,) which points of the line lie in a junction; None for none.

        Raises:
            RouteError: the line is shorter than two points.
        """
        keep = np.concatenate(([True], np.hypot(*np.diff(line[:, :2], axis=0).T) > 0.2))
        junction = np.zeros(len(line), np.bool_) if junction is None else junction
        line, half_lane, junction = line[keep], half_lane[keep], junction[keep]
        if len(line) < 3:
            raise RouteError(f"Route {name} has {len(line)} points, expected at least 3: choose ends further apart.")
        raw_s = arc_length(line[:, :2])
        count = max(3, round(raw_s[-1] / RESOLUTION_M) + 1)
        even = np.linspace(0.0, raw_s[-1], count)
        points = _smoothed(np.stack([np.interp(even, raw_s, line[:, k]) for k in (0, 1)], axis=1))
        s = arc_length(points)
        yaw = _tangents(points)
        curvature = np.gradient(yaw, s)
        width = np.interp(even, raw_s, half_lane).clip(min=LEAST_HALF_LANE_M)
        inside = np.interp(even, raw_s, junction) > 0.5
        return cls(name, points, s, yaw, curvature, width, float(line[0, 2]), turns, inside, map)

    @cached_property
    def length_m(self) -> float:
        """Length of the line."""
        return float(self.s[-1])

    @property
    def junctions(self) -> int:
        """Number of junctions on the route."""
        return int(np.count_nonzero(np.diff(self.junction.astype(np.int8), prepend=0) == 1))

    def project(self, x: float, y: float, hint_s_m: float | None = None) -> Projection:
        """Return the nearest point of the line to (x, y).

        Args:
            hint_s_m: arc length of the previous projection; only its neighbourhood is searched, so that a route that
                crosses or touches itself never jumps. Without a hint the whole line is searched.
        """
        low, high = 0, len(self._pieces)
        if hint_s_m is not None:
            step = self.length_m / high
            low = max(0, min(high - 1, int((hint_s_m - WINDOW_BACK_M) / step)))
            high = min(high, max(low + 1, int((hint_s_m + WINDOW_AHEAD_M) / step) + 1))
        nearest, least = (low, 0.0, 0.0, 0.0), math.inf
        # Python's own numbers: for so few segments numpy's calls take three times as long.
        for i, (from_x, from_y, dx, dy, square) in enumerate(self._pieces[low:high], low):
            share = min(max(((x - from_x) * dx + (y - from_y) * dy) / square, 0.0), 1.0)
            gap_x, gap_y = x - from_x - share * dx, y - from_y - share * dy
            if (gap := gap_x * gap_x + gap_y * gap_y) < least:
                nearest, least = (i, share, gap_x, gap_y), gap
        return self._at(*nearest)

    def ahead(self, s_m: float, count: int, spacing_m: float) -> FloatArray:
        """Return (count, 2) points ``spacing_m``, 2·``spacing_m`` … beyond ``s_m``; past the end straight on.

        If the points piled up at the end, the policy would see an end that it has hardly trained on: most training
        drives end earlier.
        """
        wanted = s_m + multiples(count, spacing_m)
        before = self._line.take(self.s.searchsorted(wanted, "right") - 1, axis=0)
        ahead: FloatArray = before[:, :2] * (wanted - before[:, 2])[:, None] + before[:, 3:]
        return ahead

    @cached_property
    def _pieces(self) -> list[tuple[float, float, float, float, float]]:
        """For each segment between points: x and y of its start, the differences, the squared length."""
        rows = zip(self.points[:-1].tolist(), np.diff(self.points, axis=0).tolist(), strict=True)
        return [(x, y, dx, dy, dx * dx + dy * dy) for (x, y), (dx, dy) in rows]

    @cached_property
    def _numbers(self) -> list[tuple[float, float, float]]:
        """For each point: arc length, heading and half the lane's width."""
        return list(zip(self.s.tolist(), self.yaw.tolist(), self.half_lane.tolist(), strict=True))

    @cached_property
    def _line(self) -> FloatArray:
        """(n, 5) change of position per metre of arc length after each point, arc length and position.

        The last segment continues straight.
        """
        straight = math.cos(self.yaw[-1]), math.sin(self.yaw[-1])
        slopes = np.concatenate((np.diff(self.points, axis=0) / np.diff(self.s)[:, None], (straight,)))
        return np.concatenate((slopes, self.s[:, None], self.points), axis=1)

    def _at(self, i: int, share: float, gap_x: float, gap_y: float) -> Projection:
        (s_m, yaw, half_lane_m), (next_s_m, next_yaw, _) = self._numbers[i : i + 2]
        _, _, dx, dy, _ = self._pieces[i]
        side = 1.0 if dx * gap_y - dy * gap_x >= 0.0 else -1.0
        lateral_m = side * math.hypot(gap_x, gap_y)
        return Projection(s_m + share * (next_s_m - s_m), lateral_m, yaw + share * (next_yaw - yaw), half_lane_m)


@lru_cache
def multiples(count: int, spacing_m: float) -> FloatArray:
    """Return (count,) distances: ``spacing_m``, 2·``spacing_m`` …"""
    distances = spacing_m * np.arange(1.0, count + 1.0)
    distances.flags.writeable = False
    return distances


def arc_length(points: FloatArray) -> FloatArray:
    """Return the (n,) distance along (n, 2) points, from 0."""
    lengths: FloatArray = np.concatenate(([0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))))
    return lengths


def turned(x: Number, y: Number, yaw: float) -> tuple[Number, Number]:
    """Return an offset (numbers or arrays) in the frame of ``yaw``: forward and to the right."""
    cos, sin = math.cos(yaw), math.sin(yaw)
    return cos * x + sin * y, cos * y - sin * x


def wrapped(angle: Number) -> Number:
    """Return ``angle`` (a number or an array) wrapped to [-π, π)."""
    return (angle + math.pi) % (2.0 * math.pi) - math.pi


def _smoothed(points: FloatArray) -> FloatArray:
    """Return a moving average that keeps both ends: small steps between lanes would read as curvature."""
    half = SMOOTHING_POINTS // 2
    smooth: FloatArray = points.copy()
    kernel = np.full(SMOOTHING_POINTS, 1.0 / SMOOTHING_POINTS)
    for k in (0, 1):
        smooth[half:-half, k] = np.convolve(points[:, k], kernel, mode="valid")
    return smooth


def _tangents(points: FloatArray) -> FloatArray:
    tangent = np.gradient(points, axis=0)
    yaw: FloatArray = np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0]))
    return yaw
