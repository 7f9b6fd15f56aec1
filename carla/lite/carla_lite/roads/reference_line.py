"""The mathematics of an OpenDRIVE road: its reference line, and cubic profiles along it.

Owns positions and headings as functions of the station s, in OpenDRIVE's right-handed frame. Knows no XML and no lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Spacing of the table for integrating a spiral: errors stay far below 1 mm.
TABLE_STEP_M = 0.05
# The 0.9.16 client tabulates a cubic and joins its points by chords (found by experiment): with this spacing in metres
# of u, or of the length that scales the parameter, and at least this many parts.
POLY3_STEP_M = 0.3
PARAM_POLY3_STEP_M, PARAM_POLY3_PARTS = 0.5, 5
# From this radius on, the client's single precision shows when it adds an arc's centre.
FAR_CENTRE_M = 1e4
# From this heading on, the turn along an arc is lost in the heading's digits, so the client's arc stays at its start.
LOST_TURN_RAD = 1e12


@dataclass(frozen=True)
class Profile:
    """A piecewise cubic a + b·d + c·d² + d·d³ of d = s − start (elevation, lane offset, lane width)."""

    starts: FloatArray  # (k,) ascending
    coefficients: FloatArray  # (k, 4)

    @classmethod
    def of(cls, records: Sequence[tuple[float, float, float, float, float]]) -> Profile:
        """Return the profile of records (start, a, b, c, d); without records it is zero everywhere."""
        table = np.array(sorted(records, key=lambda record: record[0]) or [(0.0,) * 5], dtype=np.float64)
        return cls(table[:, 0], table[:, 1:])

    def __call__(self, s: FloatArray) -> FloatArray:
        """Return the values (n,) at stations s (n,)."""
        index = 0 if len(self.starts) == 1 else np.maximum(np.searchsorted(self.starts, s, side="right") - 1, 0)
        d = s - self.starts[index]
        a, b, c, e = self.coefficients[index].T
        value: FloatArray = a + d * (b + d * (c + d * e))
        return value


@dataclass(frozen=True)
class Geometry:
    """One piece of a plan view. ``parameters`` belong to its kind, in the order of the OpenDRIVE attributes:

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
        if self.kind == "arc" and self.parameters[0] and self._shows_digits:
            return self._arc_in_digits(self._clamped(d), *self.parameters)
        u, v, turn = self._local(d)
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        return self.x + u * cos - v * sin, self.y + u * sin + v * cos, self.heading + turn

    def _local(self, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return u, v, heading in the piece's frame; the client extends only cubics beyond their length."""
        if self.kind in ("poly3", "paramPoly3"):
            points, slopes = self._table()
            return chords(d, points, slopes, self.length + (POLY3_STEP_M if self.kind == "poly3" else 0.0))
        d = self._clamped(d)
        if self.kind == "line":
            return d, np.zeros_like(d), np.zeros_like(d)
        if self.kind == "arc":
            return arc(d, self.parameters[0])
        return spiral(d, self.length, *self.parameters)

    def _clamped(self, d: FloatArray) -> FloatArray:
        # In the order of LibCarla's Clamp, which decides about a length that is negative or NaN.
        d = np.maximum(d, 0.0)
        return np.where(self.length < d, self.length, d)

    @property
    def _shows_digits(self) -> bool:
        return abs(self.parameters[0]) < 1 / FAR_CENTRE_M or abs(self.heading) > LOST_TURN_RAD

    def _arc_in_digits(self, d: FloatArray, curvature: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return x, y, heading of an arc as in the client, whose digits show there (GeometryArc)."""
        radius, turn = 1.0 / curvature, self.heading + d * curvature
        places = []
        for start, begin, end in (
            (self.x, -np.sin(self.heading), np.sin(turn)),
            (self.y, np.cos(self.heading), -np.cos(turn)),
        ):
            centre = np.float32(start) + np.float32(radius * begin)
            places.append((centre + (radius * end).astype(np.float32)).astype(np.float64))
        return places[0], places[1], turn

    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Return points (n, 2) of a cubic up to its length, and its slopes there (n, 2)."""
        if self.kind == "poly3":
            p = np.arange(0.0, self.length + 2 * POLY3_STEP_M, POLY3_STEP_M)
            points = np.stack([p, cubic(self.parameters, p)], axis=1)
            return points, np.stack([np.ones_like(p), slope(self.parameters, p)], axis=1)
        end = self.length if self.arc_length else 1.0
        p = np.linspace(0.0, end, max(int(self.length / PARAM_POLY3_STEP_M), PARAM_POLY3_PARTS) + 1)
        u, v = self.parameters[:4], self.parameters[4:]
        return np.stack([cubic(u, p), cubic(v, p)], axis=1), np.stack([slope(u, p), slope(v, p)], axis=1)


def arc(d: FloatArray, curvature: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading of a circle; written with sinc so that a curvature of zero is a line."""
    turn = d * curvature
    chord = d * np.sinc(turn / (2 * np.pi))
    return chord * np.cos(turn / 2), chord * np.sin(turn / 2), turn


def spiral(d: FloatArray, length: float, start: float, end: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading of an Euler spiral, whose curvature changes linearly from ``start`` to ``end``."""
    rate = (end - start) / length if length else 0.0
    reach = float(d.max(initial=0.0))
    table = np.linspace(0.0, reach, max(int(reach / TABLE_STEP_M), 16) + 1)
    turn = table * (start + rate * table / 2)
    u, v = cumulative(np.cos(turn), table), cumulative(np.sin(turn), table)
    return np.interp(d, table, u), np.interp(d, table, v), d * (start + rate * d / 2)


def chords(
    d: FloatArray, points: FloatArray, slopes: FloatArray, length: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return u, v, heading at distances d along the chords through points (n, 2), with their slopes (n, 2).

    The chord that reaches ``length`` continues beyond it.
    """
    table = np.concatenate([points, slopes], axis=1)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(table[:, :2], axis=0).T))])
    along = along[: max(int(np.searchsorted(along, length, side="right")), 1) + 1]
    after = np.clip(np.searchsorted(along, d, side="right"), 1, len(along) - 1)
    # The client's order of operations, which matters where a chord is longer than all maps.
    share = ((along[after] - d) / (along[after] - along[after - 1]))[:, None]
    u, v, du, dv = (share * table[after - 1] + (1.0 - share) * table[after]).T
    return u, v, np.arctan2(dv, du)


def cubic(k: tuple[float, ...], p: FloatArray) -> FloatArray:
    """Return the cubic with coefficients k at p."""
    value: FloatArray = k[0] + p * (k[1] + p * (k[2] + p * k[3]))
    return value


def slope(k: tuple[float, ...], p: FloatArray) -> FloatArray:
    """Return the derivative of the cubic with coefficients k at p."""
    value: FloatArray = k[1] + p * (2 * k[2] + p * 3 * k[3])
    return value


def cumulative(values: FloatArray, at: FloatArray) -> FloatArray:
    """Return the integral of ``values`` from the first point to each point (trapezium rule)."""
    return np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(at))])


@dataclass(frozen=True)
class ReferenceLine:
    """All pieces of one road's plan view, with its elevation."""

    pieces: tuple[Geometry, ...]
    elevation: Profile

    @cached_property
    def _starts(self) -> FloatArray:
        return np.array([piece.s for piece in self.pieces])

    def __call__(self, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return x, y, z, heading, (n,) each, at stations s (n,)."""
        index = np.maximum(np.searchsorted(self._starts, s, side="right") - 1, 0)
        x, y, heading = np.empty_like(s), np.empty_like(s), np.empty_like(s)
        for i in sorted(set(index.tolist())):
            mine = index == i
            x[mine], y[mine], heading[mine] = self.pieces[i](s[mine] - self._starts[i])
        return x, y, self.elevation(s), heading
