"""Towns from a seed: what holds for every name, by the real ``carla`` client's reading of them and by ours."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys

import cv2
import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carla_lite.roads import network as roads
from carla_lite.towns import generator as towns
from carla_lite.towns import seeded
from carla_lite.towns.junctions import build
from tests.unit.carla_lite.places import client_map

carla = pytest.importorskip("carla")

names = st.builds("Lite:seed={},size={}".format, st.integers(0, 10**6), st.integers(200, 450))
few = settings(max_examples=6)
PIXEL_M = 0.25


@few
@given(names)
@example("Lite:seed=7")
@example("Lite01")
@example("Lite02")
def test_every_lane_is_reached_from_every_other(name: str) -> None:
    graph = nx.DiGraph(((a.road_id, a.lane_id), (b.road_id, b.lane_id)) for a, b in client_map(name).get_topology())
    waypoints = client_map(name).generate_waypoints(2.0)
    assert set(graph) == {(w.road_id, w.lane_id) for w in waypoints}
    assert all(graph.out_degree(lane) and graph.in_degree(lane) for lane in graph)
    for waypoint in waypoints:
        for change, beside in (
            (carla.LaneChange.Left, waypoint.get_left_lane),
            (carla.LaneChange.Right, waypoint.get_right_lane),
        ):
            if waypoint.lane_change in (change, carla.LaneChange.Both):
                graph.add_edge((waypoint.road_id, waypoint.lane_id), (waypoint.road_id, beside().lane_id))
    assert nx.is_strongly_connected(graph)


@few
@given(names)
@example("Lite:seed=900,size=400")  # one edge in eight was another lane's before each piece of a street was a section
def test_the_client_finds_a_lane_up_to_its_edges(name: str) -> None:
    for waypoint in client_map(name).generate_waypoints(4.0):
        near = [waypoint, *waypoint.next(8.0), *waypoint.previous(8.0)]
        if len(near) < 3 or any(one.is_junction for one in near):
            continue  # before a crossing lanes of its turns lie on those of the street
        at, yaw = waypoint.transform.location, math.radians(waypoint.transform.rotation.yaw)
        for aside in (-0.95, 0.95):
            m = aside * waypoint.lane_width / 2.0
            found = client_map(name).get_waypoint(
                carla.Location(at.x - math.sin(yaw) * m, at.y + math.cos(yaw) * m, at.z)
            )
            assert (found.road_id, found.lane_id) == (waypoint.road_id, waypoint.lane_id)


@few
@given(names)
def test_following_a_lane_never_jumps(name: str) -> None:
    for waypoint in client_map(name).generate_waypoints(4.0):
        for one in waypoint.next(2.0):
            # The client counts along the road: outer lanes are longer in a bend.
            assert abs(one.transform.location.distance(waypoint.transform.location) - 2.0) < 0.8
            turned = math.remainder(one.transform.rotation.yaw - waypoint.transform.rotation.yaw, 360.0)
            assert abs(turned) < 15.0


@few
@given(names)
def test_streets_keep_clear_of_each_other(name: str) -> None:
    network = roads.load(name)
    x_min, y_min, x_max, y_max = network.bounds
    taken = np.zeros((math.ceil((y_max - y_min) / PIXEL_M) + 1, math.ceil((x_max - x_min) / PIXEL_M) + 1), np.uint8)
    for road in {lane.road_id for lane in network.lanes if not lane.in_junction}:
        mine = np.zeros_like(taken)
        for lane in (lane for lane in network.lanes if lane.road_id == road):
            outline = np.concatenate([lane.left, lane.right[::-1]])[:, :2]
            cv2.fillPoly(mine, [np.rint((outline - (x_min, y_min)) / PIXEL_M).astype(np.int32)], 1)
        taken += mine
    assert taken.max() == 1, "nothing lies on two streets, sidewalks included"


@few
@given(names)
def test_every_spawn_point_is_on_a_lane_and_faces_along_it(name: str) -> None:
    places = roads.load(name).spawn_points()
    assert len(places) >= 40
    for place in places:
        waypoint = client_map(name).get_waypoint(
            carla.Location(place.x, place.y, place.z), project_to_road=True, lane_type=carla.LaneType.Driving
        )
        there = waypoint.transform
        aside = (there.location.y - place.y) * math.cos(place.yaw) - (there.location.x - place.x) * math.sin(place.yaw)
        assert abs(aside) < 0.05
        assert abs(math.remainder(math.radians(there.rotation.yaw) - place.yaw, math.tau)) < 0.03


def test_a_seeds_town_has_all_kinds_of_streets() -> None:
    town = build(seeded.plan_of("Lite:seed=7,size=400"))
    assert {street.lanes for street, _ in town.streets} == {1, 2, 3}
    assert {len(arms) for arms in town.arms.values()} == {3, 4}
    curvatures = [abs(piece.curvature) for _, line in town.streets for piece in line]
    assert max(curvatures) > 1 / 45
    assert 0.0 in curvatures
    metres = sum(piece.length for _, line in town.streets for piece in line)
    assert metres >= 2400, "at least the streets of Town01"


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("Lite:seed=7", "79ea70cbaeb015a5"),
        ("Lite:seed=0,size=200", "e943b0b02d32ed97"),
        ("Lite01", "dee52dda9b1d43ea"),
        ("Lite02", "45f1b8c67f42b2ab"),
    ],
)
def test_a_name_gives_the_same_bytes_everywhere(name: str, digest: str) -> None:
    assert hashlib.sha256(towns.generate(name).encode()).hexdigest()[:16] == digest
    script = f"from carla_lite.towns import generator; print(generator.generate({name!r}), end='')"
    other = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": "77"}, capture_output=True, check=True
    )
    assert hashlib.sha256(other.stdout).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    "name", ["Lite:", "Lite:seed=x", "Lite:seed=-1", "Lite:seed=1,size=50", "Lite:seed=1,size=5000", "Lite:size=400"]
)
def test_a_wrong_name_is_answered_with_how_it_is_written(name: str) -> None:
    with pytest.raises(roads.MapError, match=r"expected one of .*Lite:seed=NUMBER,size=METRES .*200 to 1000"):
        roads.load(name)
