"""Our lanes against those of the real ``carla`` client, which reads the same OpenDRIVE text without a server."""

from __future__ import annotations

import math

import numpy as np
import pytest

from carla_lite.roads import network as roads
from tests.unit.carla_lite.places import client_map, network_of

carla = pytest.importorskip("carla")

NAMES = [*roads.MAP_NAMES, "Town01", "Town02"]


def difference(a_rad: float, b_rad: float) -> float:
    return abs(math.remainder(a_rad - b_rad, math.tau))


@pytest.mark.parametrize("name", NAMES)
def test_spawn_points_lie_on_a_lanes_centre_and_face_along_it(name: str) -> None:
    network = network_of(name)
    places = network.spawn_points()
    assert len(places) > 50
    for place in places:
        waypoint = client_map(name).get_waypoint(carla.Location(place.x, place.y, place.z))
        there = waypoint.transform.location
        ahead_x, ahead_y = math.cos(place.yaw), math.sin(place.yaw)
        aside = (there.x - place.x) * -ahead_y + (there.y - place.y) * ahead_x
        along = (there.x - place.x) * ahead_x + (there.y - place.y) * ahead_y
        assert abs(aside) < 0.05
        assert abs(along) < 0.3, "the client searches the nearest station in steps"
        assert difference(math.radians(waypoint.transform.rotation.yaw), place.yaw) < 0.03
        assert not waypoint.is_junction


@pytest.mark.parametrize("name", NAMES)
def test_lane_centres_and_widths_are_the_clients(name: str) -> None:
    network = network_of(name)
    compared = 0
    for lane in (lane for lane in network.lanes if lane.kind in ("driving", "sidewalk")):
        # By road, lane and station: lanes overlap within junctions, so a search by place may find another one.
        section_end = np.linalg.norm(np.diff(lane.centre[:, :2], axis=0), axis=1).sum()
        waypoint = client_map(name).get_waypoint_xodr(lane.road_id, lane.lane_id, 0.0)
        if waypoint is None or lane.section != 0 or section_end < 1.0:
            continue
        start = lane.centre[0 if lane.lane_id < 0 else -1]
        here = waypoint.transform.location
        assert math.hypot(here.x - start[0], here.y - start[1]) < 0.02
        assert here.z == pytest.approx(start[2], abs=0.02)
        assert waypoint.lane_width == pytest.approx(lane.width_m[0 if lane.lane_id < 0 else -1], abs=0.01)
        assert waypoint.is_junction == lane.in_junction
        compared += 1
    assert compared > 60


LENGTH = 40.13467627  # that of the cubic (40 p, 9 p² − 6 p³) from p = 0 to 1
SHAPES = {
    "line": "<line/>",
    "arc": '<arc curvature="-0.02"/>',
    "arc around a far centre": '<arc curvature="1e-6"/>',
    "spiral": '<spiral curvStart="0.0" curvEnd="0.03"/>',
    "spiral from an arc": '<spiral curvStart="0.03" curvEnd="-0.01"/>',
    "poly3": '<poly3 a="0" b="0" c="0.006" d="-0.0001"/>',
    "paramPoly3": '<paramPoly3 pRange="normalized" aU="0" bU="40" cU="0" dU="0" aV="0" bV="0" cV="9" dV="-6"/>',
    "paramPoly3 by length": f'<paramPoly3 pRange="arcLength" aU="0" bU="{40 / LENGTH}" cU="0" dU="0" '
    f'aV="0" bV="0" cV="{9 / LENGTH**2}" dV="{-6 / LENGTH**3}"/>',
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_kind_of_geometry_runs_where_the_client_says(shape: str) -> None:
    xodr = f"""<OpenDRIVE><header revMajor="1" revMinor="4"><geoReference>+lat_0=49 +lon_0=8</geoReference></header>
      <road name="" id="7" length="{LENGTH}" junction="-1">
      <planView><geometry s="0" x="30" y="20" hdg="0.7" length="{LENGTH}">{shape}</geometry></planView>
      <elevationProfile><elevation s="0" a="1" b="0.05" c="0" d="0"/></elevationProfile>
      <lanes><laneOffset s="0" a="0" b="0" c="0" d="0"/><laneSection s="0"><center><lane id="0" type="none"/></center>
        <right><lane id="-1" type="driving"><width sOffset="0" a="3" b="0.02" c="0" d="0"/></lane></right>
      </laneSection></lanes></road></OpenDRIVE>"""
    (lane,) = roads.RoadNetwork.parse("shape", xodr, step_m=LENGTH / 20).lanes
    reader = carla.Map("shape", xodr)
    for i, (x, y, z) in enumerate(lane.centre[:-1]):
        waypoint = reader.get_waypoint_xodr(7, -1, i * LENGTH / 20)
        there = waypoint.transform.location
        assert (there.x, there.y, there.z) == pytest.approx((x, y, z), abs=0.02)
        assert waypoint.lane_width == pytest.approx(lane.width_m[i], abs=1e-3)
