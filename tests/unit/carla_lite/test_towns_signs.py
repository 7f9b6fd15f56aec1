"""Lights, signs and crosswalks of generated towns, as the real ``carla`` client reads them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import pytest

from carla_lite.towns import generator as towns
from tests.unit.carla_lite.places import client_map

carla = pytest.importorskip("carla")
each_town = pytest.mark.parametrize("name", [*towns.NAMES, "Lite:seed=7,size=400"])
LIGHT, STOP, YIELD, LIMIT = "1000001", "206", "205", "274"


def into_junctions(name: str) -> dict[int, list[Any]]:
    """The first waypoints of every turn, by junction."""
    found: dict[int, list[Any]] = {}
    for waypoint in client_map(name).generate_waypoints(1.0):
        if waypoint.is_junction and waypoint.junction_id not in found:
            ways = waypoint.get_junction().get_waypoints(carla.LaneType.Driving)
            found[waypoint.junction_id] = [begin for begin, _ in ways]
    return found


@each_town
def test_a_junction_has_lights_or_one_sign(name: str) -> None:
    seen: Counter[str] = Counter()
    for ways in into_junctions(name).values():
        by_street: dict[int, set[str]] = {}
        for begin in ways:
            before = begin.previous(1.0)[0]
            marks = {one.type for one in before.get_landmarks(3.0) if one.type != LIMIT}
            by_street.setdefault(before.road_id, set()).update(marks)
        kinds = Counter(next(iter(marks), "") for marks in by_street.values())
        seen += kinds
        assert all(len(marks) <= 1 for marks in by_street.values())
        assert kinds[LIGHT] == len(by_street) or kinds in ({"": 2, STOP: 1}, {"": 2, YIELD: 1})
    assert seen[LIGHT] > 10
    assert seen[STOP] + seen[YIELD] > 2


@each_town
def test_a_pole_stands_behind_the_kerb_at_the_streets_end(name: str) -> None:
    for landmark in client_map(name).get_all_landmarks():
        if landmark.type == LIMIT:
            continue
        turn = client_map(name).get_waypoint_xodr(landmark.road_id, -1, landmark.s)
        while turn.get_right_lane() is not None and turn.get_right_lane().lane_type == carla.LaneType.Driving:
            turn = turn.get_right_lane()
        to_pole = landmark.transform.location - turn.transform.location
        forward, right = turn.transform.get_forward_vector(), turn.transform.get_right_vector()
        assert abs(to_pole.dot(forward)) < 2.0
        assert 2.0 < to_pole.dot(right) < 13.0, "one to three lanes, then the kerb"


@each_town
def test_every_light_has_its_own_controller(name: str) -> None:
    root = ET.fromstring(towns.generate(name))
    lights = {one.get("id") for one in root.iter("signal") if one.get("type") == LIGHT}
    controlled = {one.get("id"): [control.get("signalId") for control in one] for one in root.iterfind("controller")}
    assert Counter(signal for signals in controlled.values() for signal in signals) == Counter(lights)
    named = [one.get("id") for one in root.iterfind("junction/controller")]
    assert Counter(named) == Counter(controlled.keys())
    references = {one.get("id") for one in root.iter("signalReference")}
    assert references == {one.get("id") for one in root.iter("signal") if one.get("type") != LIMIT}


@each_town
def test_every_street_says_its_speed_limit_in_both_directions(name: str) -> None:
    limits = [one for one in client_map(name).get_all_landmarks() if one.type == LIMIT]
    streets = {w.road_id for w in client_map(name).generate_waypoints(5.0) if not w.is_junction}
    assert Counter(one.road_id for one in limits) == Counter(dict.fromkeys(streets, 2))
    assert {one.value for one in limits} <= {30.0, 40.0, 50.0, 60.0}


@each_town
def test_every_arm_has_a_crosswalk_from_kerb_to_kerb(name: str) -> None:
    crossing_map = client_map(name)
    places = crossing_map.get_crosswalks()
    corners = [places[i : i + 5] for i in range(0, len(places), 5)]
    arms = {(b.previous(1.0)[0].road_id, k) for k, ways in into_junctions(name).items() for b in ways}
    assert len(corners) == len(arms)
    for near_right, far_right, far_left, near_left, closing in corners:
        assert near_right.distance(closing) < 1e-3
        for kerb in (near_right, far_right, far_left, near_left):
            outside = crossing_map.get_waypoint(kerb, lane_type=carla.LaneType.Any)
            assert outside.lane_type in (carla.LaneType.Shoulder, carla.LaneType.Sidewalk)
        middle = (near_right + far_left) / 2
        inside = crossing_map.get_waypoint(carla.Location(middle), lane_type=carla.LaneType.Driving)
        assert inside.is_junction
        assert near_right.distance(near_left) > 7.0
        assert math.isclose(near_right.distance(near_left), far_right.distance(far_left), abs_tol=6.0)
