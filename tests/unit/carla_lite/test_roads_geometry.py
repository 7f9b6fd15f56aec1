"""Reference lines of every OpenDRIVE kind, and lanes beside them: what must hold whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_lite.roads.lanes import lanes_of
from carla_lite.roads.opendrive import LaneRecord, Road, Section
from carla_lite.roads.reference_line import FAR_CENTRE_M, FloatArray, Geometry, Profile, ReferenceLine

coordinate = st.floats(-500, 500)
heading = st.floats(-3.1, 3.1)
length = st.floats(1, 60)
# Where the client adds an arc's centre in single precision, so do we: not here.
curvature = st.floats(-1 / 16, 1 / 16).filter(lambda value: not 0.0 < abs(value) < 1.01 / FAR_CENTRE_M)


def constant(value: float) -> Profile:
    return Profile.of([(0.0, value, 0.0, 0.0, 0.0)])


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Any kind of piece, with bends as roads have them."""
    kind = draw(st.sampled_from(["line", "arc", "spiral", "poly3", "paramPoly3", "paramPoly3 by length"]))
    size = draw(length)
    # No cubic bends tighter than the lanes beside it are wide: its curvature is at most 2 · bend / size.
    bend = draw(st.floats(-1, 1)) * min(0.3, size / 32)
    parameters: dict[str, tuple[float, ...]] = {
        "line": (),
        "arc": (draw(curvature),),
        "spiral": (draw(curvature), draw(curvature)),
        "poly3": (0.0, 0.0, bend / size, -bend / size**2 / 2),
        "paramPoly3": (0.0, size, 0.0, 0.0, 0.0, 0.0, bend * size, -bend * size / 2),
        "paramPoly3 by length": (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, bend / size, -bend / size**2 / 2),
    }
    place = (draw(coordinate), draw(coordinate), draw(heading))
    name = kind.split(maxsplit=1)[0]
    return Geometry(0.0, *place, size, name, parameters[kind], kind.endswith("length"))  # type: ignore[arg-type]


def road_along(geometry: Geometry, lanes: tuple[LaneRecord, ...]) -> Road:
    line = ReferenceLine((geometry,), constant(0.0))
    return Road(1, False, geometry.length, line, constant(0.0), (Section(0.0, geometry.length, lanes),), ())


@given(geometries())
def test_a_piece_has_its_start_and_tangent(geometry: Geometry) -> None:
    d = np.linspace(0, geometry.length, 2001)
    x, y, turn = geometry(d)
    assert (x[0], y[0], turn[0]) == pytest.approx((geometry.x, geometry.y, geometry.heading), abs=1e-6)
    tangent = np.arctan2(np.diff(y), np.diff(x))
    middle = (turn[1:] + turn[:-1]) / 2
    # A cubic is half a metre's chords, as in the client, between whose ends the tangent turns.
    assert np.abs(np.angle(np.exp(1j * (tangent - middle)))).max() < 0.02


@given(geometries())
def test_stations_are_evenly_spread_along_the_curve(geometry: Geometry) -> None:
    x, y, _ = geometry(np.linspace(0, geometry.length, 501))
    steps = np.hypot(np.diff(x), np.diff(y))
    assert steps.max() / steps.min() < 1.02
    if geometry.kind != "paramPoly3":  # whose curve may be a little longer or shorter than the file's length says
        assert steps.sum() == pytest.approx(geometry.length, rel=1e-3)


@given(length, curvature)
def test_a_spiral_of_constant_curvature_is_an_arc(size: float, bend: float) -> None:
    d = np.linspace(0, size, 50)
    spiral = Geometry(0, 0, 0, 0, size, "spiral", (bend, bend))
    arc = Geometry(0, 0, 0, 0, size, "arc", (bend,))
    assert np.abs(np.subtract(spiral(d), arc(d))).max() < 1e-4


def test_a_clothoid_ends_where_the_fresnel_integrals_say() -> None:
    # Curvature grows as s over a length of 1: the end is (∫cos(t²/2), ∫sin(t²/2)), from the series to the t^13 term.
    spiral = Geometry(0, 0, 0, 0, 1.0, "spiral", (0.0, 1.0))
    x, y, turn = spiral(np.array([1.0]))
    assert (x[0], y[0], turn[0]) == pytest.approx((0.975288, 0.163714, 0.5), abs=2e-4)


@given(geometries(), st.lists(st.floats(2, 4), min_size=1, max_size=3), st.floats(0.3, 5))
def test_edges_never_cross_and_left_is_left_for_both_directions(
    geometry: Geometry, widths: list[float], step_m: float
) -> None:
    sides = [(side * (i + 1), width) for side in (1, -1) for i, width in enumerate(widths)]
    records = tuple(LaneRecord(lane_id, "driving", constant(width)) for lane_id, width in sides)
    lanes = list(lanes_of(road_along(geometry, records), step_m))
    assert len(lanes) == len(sides)
    for lane in lanes:
        tangent = np.gradient(lane.centre[:, :2], axis=0)
        tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
        # CARLA's y points to the right: a quarter turn clockwise from above is (x, y) → (−y, x).
        rightward = np.stack([-tangent[:, 1], tangent[:, 0]], axis=1)
        across = ((lane.right - lane.left)[:, :2] * rightward).sum(axis=1)
        assert across == pytest.approx(lane.width_m, rel=0.1)
        for edge in (lane.left, lane.right):
            assert ((np.diff(edge[:, :2], axis=0) * tangent[:-1]).sum(axis=1) > 0).all(), "an edge runs backwards"


@given(geometries(), st.floats(0.3, 5))
def test_samples_keep_the_step_and_reach_both_ends(geometry: Geometry, step_m: float) -> None:
    road = road_along(geometry, (LaneRecord(-1, "driving", constant(3.0)),))
    (lane,) = lanes_of(road, step_m)
    x, y, _ = geometry(np.array([0.0, geometry.length]))
    assert lane.left[[0, -1], :2] == pytest.approx(np.stack([x, -y], axis=1), abs=1e-6)
    assert np.linalg.norm(np.diff(lane.left, axis=0), axis=1).max() <= step_m * 1.5


def test_a_profile_changes_at_its_records() -> None:
    profile = Profile.of([(10.0, 5.0, 1.0, 0.0, 0.0), (0.0, 2.0, 0.0, 0.0, 0.01)])
    at: FloatArray = np.array([0.0, 5.0, 10.0, 12.0])
    assert profile(at) == pytest.approx([2.0, 2.0 + 0.01 * 125, 5.0, 7.0])
