"""The generated towns: their text, and what the real ``carla`` client makes of them without a server."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import pytest

from carla_lite.towns import generator as towns
from tests.unit.carla_lite.places import client_map

carla = pytest.importorskip("carla")
each_town = pytest.mark.parametrize("name", towns.NAMES)


def heading_change_deg(first: Any, second: Any) -> float:
    """Degrees from one waypoint's heading to another's, clockwise positive."""
    return math.remainder(second.transform.rotation.yaw - first.transform.rotation.yaw, 360.0)


def to_the_end(waypoint: Any) -> Any:
    part = waypoint.road_id, waypoint.section_id
    while inside := [after for after in waypoint.next(0.5) if (after.road_id, after.section_id) == part]:
        waypoint = inside[0]
    return waypoint


def test_an_unknown_town_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        towns.generate("Lite99")


@each_town
def test_following_a_lane_never_jumps(name: str) -> None:
    for waypoint in client_map(name).generate_waypoints(2.0):
        following = waypoint.next(2.0)
        assert following
        for one in following:
            assert abs(one.transform.location.distance(waypoint.transform.location) - 2.0) < 0.3
            assert abs(heading_change_deg(waypoint, one)) < 15.0


@each_town
def test_one_lane_begins_where_the_one_before_it_ends(name: str) -> None:
    for before, after in client_map(name).get_topology():
        end = to_the_end(before)
        gap_m = end.transform.location.distance(after.transform.location)
        assert gap_m < 0.6, "the client stops up to one step (0.5 m) before a lane's end"
        assert abs(heading_change_deg(end, after)) < 3.0
        assert after.lane_width == before.lane_width == 3.5


@each_town
def test_junctions_lead_left_right_and_straight_on(name: str) -> None:
    junctions = {w.junction_id: w.get_junction() for w in client_map(name).generate_waypoints(2.0) if w.is_junction}
    turns: Counter[str] = Counter()
    arms: Counter[int] = Counter()
    for junction in junctions.values():
        ways = junction.get_waypoints(carla.LaneType.Driving)
        arms[len({begin.previous(1.0)[0].road_id for begin, _ in ways})] += 1
        for begin, end in ways:
            change = heading_change_deg(begin, end)
            turns["right" if change > 35 else "left" if change < -35 else "straight"] += 1
    assert set(arms) == {3, 4}, "T junctions and crossings"
    assert min(turns["left"], turns["right"], turns["straight"]) >= 15


@each_town
def test_painted_lines_are_those_of_the_street(name: str) -> None:
    marks: Counter[tuple[str, ...]] = Counter()
    for waypoint in client_map(name).generate_waypoints(2.0):
        if waypoint.is_junction:
            assert waypoint.left_lane_marking.type == carla.LaneMarkingType.NONE
            continue
        left, right = waypoint.left_lane_marking, waypoint.right_lane_marking
        marks[str(left.type), str(right.type), str(waypoint.lane_change)] += 1
        if left.type in (carla.LaneMarkingType.SolidSolid, carla.LaneMarkingType.Solid):
            assert waypoint.get_left_lane() is not None
        if left.type == carla.LaneMarkingType.SolidSolid:
            assert left.color == carla.LaneMarkingColor.Yellow
    assert set(marks) == {
        ("Broken", "Solid", "NONE"),  # a street: broken in the middle, an edge line to the right
        ("Solid", "Solid", "NONE"),  # near a crossing, or the right-hand lane of an avenue there
        ("SolidSolid", "Broken", "Right"),  # the left-hand lane of an avenue
        ("Broken", "Solid", "Left"),  # its right-hand lane
        ("SolidSolid", "Solid", "NONE"),  # near a crossing there are no lane changes
    }


@each_town
def test_sidewalks_and_shoulders_lie_to_the_right_of_the_road(name: str) -> None:
    for waypoint in client_map(name).generate_waypoints(10.0):
        if waypoint.is_junction:
            continue
        outermost = waypoint
        while outermost.get_right_lane() is not None and outermost.get_right_lane().lane_type == carla.LaneType.Driving:
            outermost = outermost.get_right_lane()
        shoulder = outermost.get_right_lane()
        assert shoulder.lane_type == carla.LaneType.Shoulder
        kerb = shoulder.left_lane_marking if shoulder.lane_id * waypoint.lane_id < 0 else shoulder.right_lane_marking
        assert kerb.type == carla.LaneMarkingType.Curb
        assert shoulder.get_right_lane().lane_type == carla.LaneType.Sidewalk


@each_town
def test_the_town_has_a_place_on_earth(name: str) -> None:
    place = client_map(name).transform_to_geolocation(carla.Location(0, 0, 0))
    assert (place.latitude, place.longitude) == pytest.approx((49.0, 8.0), abs=1e-6)


@each_town
def test_links_name_roads_and_junctions_that_exist(name: str) -> None:
    root = ET.fromstring(towns.generate(name))
    ids = {"road": {road.get("id") for road in root.iterfind("road")}}
    ids["junction"] = {junction.get("id") for junction in root.iterfind("junction")}
    assert not ids["road"] & ids["junction"]
    for link in root.iterfind("road/link/*"):
        assert link.get("elementId") in ids[link.get("elementType", "")]
    for connection in root.iterfind("junction/connection"):
        assert {connection.get("incomingRoad"), connection.get("connectingRoad")} <= ids["road"]


def test_the_two_towns_are_different_places() -> None:
    def lengths(name: str) -> set[float]:
        roads = ET.fromstring(towns.generate(name)).iterfind("road[@junction='-1']")
        return {round(float(road.attrib["length"]), 1) for road in roads}

    assert not lengths("Lite01") & lengths("Lite02")
