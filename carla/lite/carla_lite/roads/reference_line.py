"""The mathematics of an OpenDRIVE road: where its reference line runs, and cubic profiles along it.

Owns positions and headings as functions of the station s, in OpenDRIVE's right-handed frame. Knows no XML and no lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Spacing of the table that a spiral, a poly3 or an arc-length paramPoly3 is integrated on: errors stay far below 1 mm.
TABLE_STEP_M = 0.05
IDENTITY = (0.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Profile:
    """A piecewise cubic a + b·d + c·d² + d·d³ of d = s − start (elevation, lane offset, lane width)."""

    starts: FloatArray  # (k,) ascending
    coefficients: FloatArray  # (k, 4)

    @classmethod
    def of(cls, records: Sequence[tuple[float, float, float, float, float]]) -> Profile:
        """Return the profile of records (start, a, b, c, d); no records at all is zero everywhere."""
        table = np.array(sorted(records, key=lambda record: record[0]) or [(0.0,) * 5], dtype=np.float64)
        return cls(table[:, 0], table[:, 1:])

    def __call__(self, s: FloatArray) -> FloatArray:
        """Return the values (n,) at stations s (n,)."""
        index = np.clip(np.searchsorted(self.starts, s, side="right") - 1, 0, None)
        d = s - self.starts[index]
        a, b, c, e = self.coefficients[index].T
        value: FloatArray = a + d * (b + d * (c + d * e))
        return value


@dataclass(frozen=True)
class Geometry:
    """One piece of a plan view; ``parameters`` are those of its kind, in the order of the OpenDRIVE attributes.

    line: none; arc: curvature; spiral: curvature at start and end; poly3: a b c d;
    paramPoly3: aU bU cU dU aV bV cV dV, over p in [0, 1] or, with ``arc_length``, over p in [0, length].
    """

    s: float
    x: float
    y: float
    heading: float
    length: float
    kind: Literal["line", "arc", "spiral", "poly3", "paramPoly3"]
    parameters: tuple[float, ...] = ()
    arc_length: bool = False

    def __call__(self, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return x, y, heading (n,) each, at distances d (n,) from the start of this piece."""
        u, v, turn = self._local(d)
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        return self.x + u * cos - v * sin, self.y + u * sin + v * cos, self.heading + turn

    def _local(self, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return u, v, heading in the piece's own frame."""
        if self.kind == "line":
            return d, np.zeros_like(d), np.zeros_like(d)
        if self.kind == "arc":
            return arc(d, self.parameters[0])
        if self.kind == "spiral":
            return spiral(d, self.length, *self.parameters)
        if self.kind == "poly3":
            # v(u) is a parametric cubic whose u is the parameter itself; where u ends, only the length says.
            p, along = lengths(IDENTITY, self.parameters, self.length, self.length)
            return parametric(d, self.length, IDENTITY, self.parameters, float(np.interp(self.length, along, p)))
        end = self.length if self.arc_length else 1.0
        return parametric(d, self.length, self.parameters[:4], self.parameters[4:], end)


def arc(d: FloatArray, curvature: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading of a circle; written with sinc so that a curvature of zero is a line."""
    turn = d * curvature
    chord = d * np.sinc(turn / (2 * np.pi))
    return chord * np.cos(turn / 2), chord * np.sin(turn / 2), turn


def spiral(d: FloatArray, length: float, start: float, end: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading of an Euler spiral: the curvature goes linearly from ``start`` to ``end``."""
    rate = (end - start) / length if length else 0.0
    table = np.linspace(0.0, length, max(int(length / TABLE_STEP_M), 16) + 1)
    turn = table * (start + rate * table / 2)
    u, v = cumulative(np.cos(turn), table), cumulative(np.sin(turn), table)
    return np.interp(d, table, u), np.interp(d, table, v), d * (start + rate * d / 2)


def parametric(
    d: FloatArray, length: float, u: tuple[float, ...], v: tuple[float, ...], end: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading of two cubics of a parameter in [0, end], at distances d along their ``length``.

    The parameter is not proportional to the distance, so the curve's own length is integrated, inverted, and stretched
    by the rounding between it and the file's: the last station is the curve's last point.
    """
    p, along = lengths(u, v, length, end)
    at = np.interp(d * (along[-1] / length), along, p)
    return cubic(u, at), cubic(v, at), np.arctan2(slope(v, at), slope(u, at))


def lengths(u: tuple[float, ...], v: tuple[float, ...], length: float, end: float) -> tuple[FloatArray, FloatArray]:
    """Return parameters from 0 to ``end`` and the length of the two cubics up to each."""
    p = np.linspace(0.0, end, max(int(length / TABLE_STEP_M), 64) + 1)
    return p, cumulative(np.hypot(slope(u, p), slope(v, p)), p)


def cubic(k: tuple[float, ...], p: FloatArray) -> FloatArray:
    """Return the cubic with coefficients k at p."""
    value: FloatArray = k[0] + p * (k[1] + p * (k[2] + p * k[3]))
    return value


def slope(k: tuple[float, ...], p: FloatArray) -> FloatArray:
    """Return the derivative of the cubic with coefficients k at p."""
    value: FloatArray = k[1] + p * (2 * k[2] + p * 3 * k[3])
    return value


def cumulative(values: FloatArray, at: FloatArray) -> FloatArray:
    """Return the integral of ``values`` from the first point up to each point (trapezium rule)."""
    return np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(at))])


@dataclass(frozen=True)
class ReferenceLine:
    """All pieces of one road's plan view, with its elevation."""

    pieces: tuple[Geometry, ...]
    elevation: Profile

    def __call__(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return x, y, z, heading, (n,) each, at stations s (n,)."""
        starts = np.array([piece.s for piece in self.pieces])
        index = np.clip(np.searchsorted(starts, s, side="right") - 1, 0, None)
        x, y, heading = np.empty_like(s), np.empty_like(s), np.empty_like(s)
        for i in np.unique(index):
            mine = index == i
            x[mine], y[mine], heading[mine] = self.pieces[i](s[mine] - starts[i])
        return x, y, self.elevation(s), heading
