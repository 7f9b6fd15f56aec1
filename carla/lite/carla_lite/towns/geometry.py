"""Geometry of generated towns: streets and turns as lines and arcs, and where streets end at a crossing.

Owns only plane geometry. A point is a complex number x + iy in OpenDRIVE's frame. A direction is a complex number of
length 1.
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
    """A line (curvature 0) or an arc (curvature > 0: to the left). Metres and radians."""

    start: complex
    heading: float
    length: float
    curvature: float = 0.0


def rounded(points: Sequence[complex], radii: Iterable[float]) -> list[Piece]:
    """Return a polyline whose corners are arcs of the given radii, as lines and arcs. Empty pieces are left out.

    Raises:
        ValueError: two arcs need more room than the line between them has.
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
    shortest = min(pieces, key=lambda piece: piece.length)
    if shortest.length < -MIN_PIECE_M:
        x, y = shortest.start.real, shortest.start.imag
        raise ValueError(
            f"the line from ({x:.1f}, {y:.1f}) is {-shortest.length:.1f} m too short for its arcs: use a smaller radius"
        )
    return [piece for piece in pieces if piece.length > MIN_PIECE_M]


def turn_between(start: complex, heading: complex, end: complex, new_heading: complex) -> list[Piece]:
    """Return the turn of largest radius from one point and direction to another: one arc, and a line if needed."""
    turn = phase(new_heading / heading)
    if abs(turn) < STRAIGHT_RAD:
        return rounded([start, end], [])
    # The intersection of the two tangents.
    ahead = cross(end - start, new_heading) / cross(heading, new_heading)
    corner = start + heading * ahead
    return rounded([start, corner, end], [min(ahead, abs(end - corner)) / tan(abs(turn) / 2)])


def setbacks(directions: Sequence[complex], kerbs: Sequence[float], corner_radius: float) -> list[float]:
    """Return the distance from the crossing's centre at which each street ends.

    Between two neighbouring streets there is then room for a kerb of radius ``corner_radius``.

    Args:
        directions: directions of the streets, away from the crossing, counter-clockwise.
        kerbs: distance of each street's kerb from its centre line.
        corner_radius: radius of the kerbs at the corners.
    """
    ends = [0.0] * len(directions)
    for i in range(len(directions)):
        j = (i + 1) % len(directions)
        between = phase(directions[j] / directions[i]) % (2 * pi)
        if between >= pi - STRAIGHT_RAD:
            continue  # the far side of a T junction has one straight kerb
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
