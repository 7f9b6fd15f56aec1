"""Hits of rays: faces from outside, hilly ground, balls that touch triangles; by closed forms."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from carla_lite.rays import caster, solids
from carla_lite.rays.caster import Caster
from carla_lite.rays.solids import Faces, Solid
from carla_lite.rays.sweep import distances, touched
from carla_lite.scenery.meshes import StaticMesh
from carla_lite.scenery.statics import TAG_BUILDING, TAG_POLE, TAG_VEGETATION, StaticBox
from tests.unit.carla_lite.places import bridge

GREY = (128, 128, 128)
HOUSE = StaticBox(10.0, 0.0, 5.0, 2.0, 4.0, 5.0, 0.0, GREY, TAG_BUILDING)
POST = StaticBox(0.0, 10.0, 3.0, 0.1, 0.1, 3.0, 0.4, GREY, TAG_POLE)
CROWN = StaticBox(-10.0, 0.0, 5.0, 2.0, 2.0, 2.0, 0.0, GREY, TAG_VEGETATION, solid=False)


def town() -> Caster:
    return Caster(Solid.of(solids.still(StaticMesh.of([HOUSE, POST, CROWN]))))


def first(town_: Caster, eye: tuple[float, ...], way: tuple[float, ...], far: float = 100.0) -> tuple[int, float]:
    """Return the thing that a ray meets, and its distance."""
    ways = np.array(way, dtype=float)[:, None] / math.hypot(*way)
    found, _, things = caster.first([town_], [1], np.array(eye)[:, None], ways, np.array([far]))
    return int(things[0]), float(found[0])


@pytest.mark.parametrize(
    ("eye", "way", "thing", "distance"),
    [
        ((0, 0, 1), (1, 0, 0), 0, 8.0),
        ((0, 0, 1), (1, 1, 0), -1, math.inf),
        ((10, 0, 20), (0, 0, -1), 0, 10.0),
        ((10, 0, 1), (1, 0, 0), -1, math.inf),  # from inside
        ((0, 0, 5), (-1, 0, 0), 2, 8.0),
    ],
)
def test_a_ray_meets_faces_from_outside(eye, way, thing, distance):
    found = first(town(), eye, way)
    assert found[0] == thing
    assert found[1] == pytest.approx(distance, abs=0.15 if thing == 2 else 1e-9)


def test_a_ray_ends_at_its_range():
    assert first(town(), (0, 0, 1), (1, 0, 0), far=7.9)[0] == -1
    assert first(town(), (0, 0, 1), (1, 0, 0), far=8.1)[0] == 0


@pytest.mark.parametrize("turn", np.linspace(0.0, math.tau, 7))
def test_a_post_is_about_as_wide_from_all_sides(turn):
    houses, way = town(), (math.cos(turn), math.sin(turn), 0.0)
    for aside, met in ((0.09, True), (-0.09, True), (0.11, False), (-0.11, False)):
        eye = (-5.0 * way[0] - aside * way[1], 10.0 - 5.0 * way[1] + aside * way[0], 2.0)
        assert (first(houses, eye, way, far=6.0)[0] == 1) == met


def test_rays_go_on_through_many_inner_sides():
    walls = np.array([[(float(x), -1.0, -1.0), (x, 1.0, -1.0), (x, 1.0, 1.0), (x, -1.0, 1.0)] for x in range(1, 12)])
    normals = np.tile((1.0, 0.0, 0.0), (11, 1))
    normals[-1] *= -1.0
    rows = Caster(Solid.of([Faces(walls, normals, np.arange(11))]))
    thing, found = first(rows, (0, 0.3, 0.2), (1, 0, 0))
    assert thing == 10
    assert found == pytest.approx(11.0)


def test_hills_are_as_high_as_their_lanes():
    x, y = np.meshgrid(np.arange(-50.0, 51.0), np.arange(-50.0, 51.0))
    points = np.stack([x.ravel(), y.ravel(), 0.1 * x.ravel()], axis=1)
    hill = Caster(Solid.of([solids.ground(points, 0)]))
    for place in (-40.0, -3.3, 0.0, 27.7):
        assert first(hill, (place, 1.7, 20.0), (0, 0, -1))[1] == pytest.approx(20.0 - 0.1 * place, abs=1e-6)
    # Beyond the map it is as high as at its edge.
    assert first(hill, (300.0, 0.0, 20.0), (0, 0, -1))[1] == pytest.approx(15.0, abs=1e-6)


def test_rays_meet_a_bridge_and_pass_under_it():
    points = np.concatenate([edge for lane in bridge().lanes for edge in (lane.left, lane.centre, lane.right)])
    crossing = Caster(Solid.of([solids.ground(points, 0)]))
    for x, y in ((50.0, -20.0), (52.0, -18.0), (47.0, -22.5)):
        assert first(crossing, (x, y, 20.0), (0, 0, -1))[1] == pytest.approx(20.0 - 6.0 - 0.02 * (-y), abs=0.2)
        assert first(crossing, (x, y, 3.0), (0, 0, -1))[1] == pytest.approx(3.0, abs=0.01)
    for y in (-22.0, -18.0):
        assert first(crossing, (5.0, y, 1.5), (1, 0, 0), far=90.0)[1] == np.inf


def test_level_ground_has_no_edge_in_reach():
    level = Caster(Solid.of([solids.ground(np.array([(0.0, 0.0, 2.0), (9.0, 5.0, 2.0)]), 0)]))
    turns = np.linspace(0.0, math.tau, 4001)
    ways = np.stack([np.cos(turns), np.sin(turns), np.full(4001, -0.01)])
    ways /= np.linalg.norm(ways, axis=0)
    eyes = np.tile([[100.0], [50.0], [5.0]], 4001)
    found, _, things = caster.first([level], [4001], eyes, ways, np.full(4001, 1e4))
    assert (things == 0).all()
    assert found == pytest.approx(-3.0 / ways[2], rel=1e-12)


def test_a_server_without_rays_loads_no_library_for_them():
    loads = "import sys, carla_lite.world; sys.exit('embreex' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], check=False).returncode == 0


TRIANGLE = np.array([[(0.0, 0.0, 0.0), (4.0, 0.0, 0.0), (0.0, 4.0, 0.0)]])


@pytest.mark.parametrize(
    ("place", "distance"),
    [
        ((1.0, 1.0, 3.0), 3.0),
        ((1.0, 1.0, -3.0), 3.0),
        ((-3.0, -4.0, 0.0), 5.0),
        ((2.0, -2.0, 0.0), 2.0),
        ((3.0, 3.0, 1.0), math.sqrt(3.0)),
    ],
)
def test_a_place_is_as_far_from_a_triangle_as_it_is(place, distance):
    assert distances(np.array(place), TRIANGLE)[0] == pytest.approx(distance)


@pytest.mark.parametrize(
    ("eye", "radius", "expected"),
    [
        ((1.0, 1.0, 5.0), 0.5, 4.5),
        ((-0.3, 1.0, 5.0), 0.5, 5.0 - 0.4),
        ((-0.6, 1.0, 5.0), 0.5, None),
        ((1.0, 1.0, 0.2), 0.5, 0.0),
        ((1.0, 1.0, 30.0), 0.5, None),
    ],
)
def test_a_ball_goes_until_it_touches(eye, radius, expected):
    found = touched(np.array(eye), np.array((0.0, 0.0, -1.0)), radius, 10.0, TRIANGLE)
    assert (found and found[0]) == (expected if expected is None else pytest.approx(expected, abs=0.01))
