"""Streets and turns as lines and arcs: polylines with rounded corners, and the ends of streets at a crossing.

Owns only plane geometry; a point is a complex number x + iy in OpenDRIVE's frame, a direction has length 1.
"""

from __future__ import annotations

from cmath import phase
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import copysign, cos, pi, sin, tan

STRAIGHT_RAD = 1e-6
MIN_PIECE_M = 1e-6


@dataclass(frozen=True)
class Piece:
    """A line (curvature 0) or an arc (positive to the left)."""

    start: complex
    heading: float
    length: float
    curvature: float = 0.0


def rounded(points: Sequence[complex], radii: Iterable[float]) -> list[Piece]:
    """Return a polyline whose inner points are rounded to arcs of the given radii; pieces without length are left out.

    ValueError: the arcs are too wide for the line between them.
    """
    pieces, at = [], points[0]
    for before, corner, after, radius in zip(points, points[1:], points[2:], radii, strict=False):
        inwards, outwards = unit(corner - before), unit(after - corner)
        turn = phase(outwards / inwards)
        tangent = radius * tan(abs(turn) / 2)
        begin = corner - inwards * tangent
        pieces.append(Piece(at, phase(inwards), ((begin - at) / inwards).real))
        pieces.append(Piece(begin, phase(inwards), radius * abs(turn), copysign(1 / radius, turn)))
        at = corner + outwards * tangent
    last = unit(points[-1] - points[-2])
    pieces.append(Piece(at, phase(last), ((points[-1] - at) / last).real))
    if (short := min(pieces, key=lambda piece: piece.length)).length < -MIN_PIECE_M:
        x, y = short.start.real, short.start.imag
        raise ValueError(
            f"the arc that ends at ({x:.1f}, {y:.1f}) leaves {short.length:.1f} m of line: use a smaller radius"
        )
    return [piece for piece in pieces if piece.length > MIN_PIECE_M]


def turn_between(start: complex, heading: complex, end: complex, new_heading: complex) -> list[Piece]:
    """Return the widest smooth way from one place and direction to another: one arc, and a line if needed."""
    turn = phase(new_heading / heading)
    if abs(turn) < STRAIGHT_RAD:
        return rounded([start, end], [])
    # The intersection of the two tangents.
    ahead = cross(end - start, new_heading) / cross(heading, new_heading)
    corner = start + heading * ahead
    return rounded([start, corner, end], [min(ahead, abs(end - corner)) / tan(abs(turn) / 2)])


def setbacks(directions: Sequence[complex], kerbs: Sequence[float], corner_radius: float) -> list[float]:
    """Return how far from a crossing each street must end so that kerbs of ``corner_radius`` fit between neighbours.

    ``directions`` lead away from the crossing, counter-clockwise; ``kerbs`` are half widths up to the kerb.
    """
    ends = [0.0] * len(directions)
    for i in range(len(directions)):
        j = (i + 1) % len(directions)
        between = phase(directions[j] / directions[i]) % (2 * pi)
        if between >= pi - STRAIGHT_RAD:
            continue  # the far side of a T: one straight kerb
        tangent = corner_radius / tan(between / 2)
        ends[i] = max(ends[i], (kerbs[j] + kerbs[i] * cos(between)) / sin(between) + tangent)
        ends[j] = max(ends[j], (kerbs[i] + kerbs[j] * cos(between)) / sin(between) + tangent)
    return ends


def unit(vector: complex) -> complex:
    """Return the direction of a vector."""
    return vector / abs(vector)


def cross(a: complex, b: complex) -> float:
    """Return the z component of the cross product."""
    return (a.conjugate() * b).imag
