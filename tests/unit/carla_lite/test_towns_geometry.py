"""Lines and arcs of the generator: each piece begins where the one before it ends, whatever the plan says."""

from __future__ import annotations

import cmath
import math
import operator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_lite.towns.geometry import Piece, rounded, setbacks, turn_between

angle = st.floats(-math.pi, math.pi)


def end_of(piece: Piece) -> tuple[complex, float]:
    """Where a piece ends, from its own numbers."""
    turn = piece.length * piece.curvature
    chord = piece.length if not piece.curvature else 2 * math.sin(turn / 2) / piece.curvature
    return piece.start + cmath.rect(chord, piece.heading + turn / 2), piece.heading + turn


def assert_smooth(pieces: list[Piece], start: complex, end: complex) -> None:
    assert abs(pieces[0].start - start) < 1e-6
    for piece, following in pairwise(pieces):
        place, heading = end_of(piece)
        assert abs(place - following.start) < 1e-6
        assert abs(math.remainder(heading - following.heading, math.tau)) < 1e-6
    assert abs(end_of(pieces[-1])[0] - end) < 1e-5


@given(st.lists(st.tuples(st.floats(-2.2, 2.2), st.floats(60, 200)), min_size=1, max_size=6), st.floats(5, 15))
def test_a_rounded_polyline_has_no_gaps_and_no_kinks(steps: list[tuple[float, float]], radius: float) -> None:
    points, heading = [0j], 0.0
    for turn, size in steps:
        heading += turn
        points.append(points[-1] + cmath.rect(size, heading))
    pieces = rounded(points, [radius] * (len(points) - 2))
    assert_smooth(pieces, points[0], points[-1])
    assert all(abs(piece.curvature) < 1 / radius + 1e-9 for piece in pieces)


def test_an_arc_that_does_not_fit_its_street_is_refused() -> None:
    with pytest.raises(ValueError, match="use a smaller radius"):
        rounded([0j, 20 + 0j, 20 + 20j], [30.0])


turns = st.builds(operator.mul, st.sampled_from([-1, 1]), st.floats(1e-3, 2.4))


@given(angle, turns, st.floats(5, 40), st.floats(5, 40))
def test_a_turn_leaves_and_arrives_along_its_streets(heading: float, turn: float, before: float, after: float) -> None:
    coming, leaving = cmath.rect(1, heading), cmath.rect(1, heading + turn)
    start, end = -coming * before, leaving * after
    pieces = turn_between(start, coming, end, leaving)
    assert_smooth(pieces, start, end)
    assert abs(math.remainder(pieces[0].heading - heading, math.tau)) < 1e-6
    assert abs(math.remainder(end_of(pieces[-1])[1] - heading - turn, math.tau)) < 1e-6


@st.composite
def gaps_of_a_junction(draw: st.DrawFn) -> list[float]:
    """Draw the angles between three or four streets but the last, each 0.7 to 2.4, so that the last is 0.7 to 3."""
    gaps: list[float] = []
    for after in draw(st.sampled_from([(1, 0), (2, 1, 0)])):
        left = math.tau - sum(gaps)
        least, most = max(0.7, left - 3.0 - 2.4 * after), min(2.4, left - 0.7 * (after + 1))
        gaps.append(draw(st.floats(min(least, most), most)))  # rounding can have them cross
    return gaps


@given(gaps_of_a_junction(), st.lists(st.floats(3.5, 8), min_size=4, max_size=4))
def test_kerbs_meet_in_corners_of_the_wanted_radius(gaps: list[float], kerbs: list[float]) -> None:
    angles = [sum(gaps[:i]) for i in range(len(gaps) + 1)]
    directions = [cmath.rect(1, at) for at in angles]
    ends = setbacks(directions, kerbs[: len(directions)], 7.0)
    for i in range(len(directions)):
        j = (i + 1) % len(directions)
        # The corner's centre is the corner radius away from both kerbs; a street ends no nearer than the tangent point.
        between = math.remainder(cmath.phase(directions[j] / directions[i]), math.tau) % math.tau
        near, far = kerbs[i] + 7.0, kerbs[j] + 7.0
        along = (far + near * math.cos(between)) / math.sin(between)
        assert ends[i] >= along - 1e-6
        centre = directions[i] * complex(along, near)
        assert abs((centre * directions[j].conjugate()).imag + far) < 1e-6
        assert ends[j] >= (centre * directions[j].conjugate()).real - 1e-6
