"""OpenDRIVE as it is found: what the real ``carla`` client loads is loaded, with the same lanes; what ends it isn't."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from carla_lite.actors.signage import Signage
from carla_lite.navigation import mesh
from carla_lite.roads import parser
from carla_lite.roads.lanes import Lane, offsets, place
from carla_lite.roads.network import MapError, RoadNetwork
from carla_lite.roads.opendrive import Road
from carla_lite.scenery.scene import Scene
from carla_lite.towns.generator import generate
from tests.unit.carla_lite import road_oracle
from tests.unit.carla_lite.road_mutations import mutations
from tests.unit.carla_lite.road_oracle import Answer, Oracle, Waypoint

pytest.importorskip("carla")

FARTHEST_M = 1e5  # between two waypoints a lane may go much further


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as found:
        yield found


def disagreement(xodr: str, answer: Answer) -> str:
    """Return where carla-lite and the client differ about a text, or nothing."""
    try:
        network = RoadNetwork.parse("map", xodr)
        network.painted()
    except MapError as error:
        # Places that the wire can't carry, more road than fits, and what leaves the client's own order of a road's
        # records undefined are refused though it bears them.
        borne = all(abs(value) <= FARTHEST_M for one in answer.every for value in one.place)
        loads = not answer.why and bool(answer.every) and borne
        loads = loads and not re.search(r"km of lanes|which is no station|t=-?inf|m long", str(error))
        return f"refused ({error}), but the client loads it" if loads else ""
    if answer.why:
        return f"loaded, but the client doesn't: {answer.why}"
    drive = parser.read("map", xodr)
    ours = {(one.road_id, one.section, one.lane_id): one for one in network.lanes}
    for waypoint in answer.every:
        road, lane = drive.roads[waypoint.road], ours.get((waypoint.road, waypoint.section, waypoint.lane))
        if said := different(road, lane, waypoint):
            return said
    for waypoint, _ in answer.topology:  # each begins where traffic enters its lane
        lane = ours.get((waypoint.road, waypoint.section, waypoint.lane))
        section = next(one for one in drive.roads[waypoint.road].sections if one.number == waypoint.section)
        if lane is not None and lane.along is not (waypoint.s - section.start < section.end - waypoint.s):
            return f"the other way than {waypoint}"
    return ""


def different(road: Road, lane: Lane | None, waypoint: Waypoint) -> str:
    """Return how a lane of ours differs from a waypoint of the client's, or nothing."""
    section = next(one for one in road.sections if one.number == waypoint.section)
    if lane is None:
        return "" if waypoint.width < 0.02 or section.end - section.start < 0.01 else f"no lane at {waypoint}"
    s = np.array([waypoint.s])
    edges = next((near, far) for one, near, far in offsets(road, section, s) if one.lane_id == waypoint.lane)
    (there,) = place(road, s, (edges[0] + edges[1]) / 2).tolist()
    apart = math.dist(there, waypoint.place)
    if not apart < 0.02 + 3e-7 * max(map(abs, waypoint.place)):
        return f"{apart} m from {waypoint}: {there}"
    return "" if lane.in_junction == waypoint.in_junction else f"junction: {waypoint}"


BASE = """<?xml version="1.0" encoding="UTF-8"?>
<OpenDRIVE>
 <header revMajor="1" revMinor="4" name="t"><geoReference>+proj=tmerc +lat_0=49 +lon_0=8</geoReference></header>
 <road name="Main" length="120" id="1" junction="-1">
  <link><successor elementType="road" elementId="2" contactPoint="start"/></link>
  <type s="0" type="town"><speed max="50" unit="km/h"/></type>
  <planView><geometry s="0" x="0" y="0" hdg="0" length="70"><line/></geometry>
   <geometry s="70" x="70" y="0" hdg="0" length="50"><arc curvature="0.02"/></geometry></planView>
  <elevationProfile><elevation s="0" a="1" b="0.01" c="0" d="0"/></elevationProfile>
  <lateralProfile/>
  <lanes><laneOffset s="0" a="0" b="0" c="0" d="0"/><laneSection s="0">
   <left><lane id="1" type="driving" level="false"><link/><width sOffset="0" a="3.5" b="0" c="0" d="0"/>
    <roadMark sOffset="0" type="solid" weight="standard" color="white" width="0.12"/></lane></left>
   <center><lane id="0" type="none" level="false"><roadMark sOffset="0" type="broken" width="0.12"/></lane></center>
   <right><lane id="-1" type="driving" level="false"><link><successor id="-1"/></link>
    <width sOffset="0" a="3.5" b="0.005" c="0" d="0"/><roadMark sOffset="0" type="solid" width="0.12"/></lane>
    <lane id="-2" type="sidewalk"><width sOffset="0" a="2" b="0" c="0" d="0"/></lane></right>
  </laneSection>
  <laneSection s="60">
   <left><lane id="1" type="driving"><link><predecessor id="1"/></link><width sOffset="0" a="3.5" b="0" c="0" d="0"/>
   </lane></left>
   <center><lane id="0" type="none"/></center>
   <right><lane id="-1" type="driving"><link><predecessor id="-1"/><successor id="-1"/></link>
    <width sOffset="0" a="3.8" b="0" c="0" d="0"/></lane></right>
  </laneSection></lanes>
  <objects><object id="7" name="cw" type="crosswalk" s="40" t="0" zOffset="0" orientation="none" hdg="0"><outline>
   <cornerLocal u="-2" v="-3.5" z="0"/><cornerLocal u="2" v="-3.5" z="0"/><cornerLocal u="2" v="3.5" z="0"/>
   </outline></object><object id="8" name="Speed_30" type="-1" s="20" t="-4" zOffset="0" hdg="0"/></objects>
  <signals><signal name="sl" id="9" s="50" t="-4" zOffset="0" hOffset="0" orientation="+" dynamic="no" type="274"
   subtype="50" value="50"><validity fromLane="-1" toLane="-1"/></signal>
   <signal name="tl" id="10" s="110" t="-5" zOffset="5" hOffset="0" orientation="-" dynamic="yes" type="1000001"
    subtype="-1" value="-1"/><signalReference s="30" t="1" id="9" orientation="-"/></signals>
 </road>
 <road name="Bend" length="40" id="2" junction="20">
  <link><predecessor elementType="road" elementId="1" contactPoint="end"/></link>
  <planView><geometry s="0" x="112.073" y="22.985" hdg="1" length="40">
   <paramPoly3 pRange="arcLength" aU="0" bU="1" cU="0" dU="0" aV="0" bV="0" cV="0.004" dV="0"/></geometry></planView>
  <elevationProfile><elevation s="0" a="2.2" b="0" c="0" d="0"/></elevationProfile>
  <lanes><laneSection s="0"><center><lane id="0" type="none"/></center>
   <right><lane id="-1" type="driving"><link><predecessor id="-1"/></link><width sOffset="0" a="3.8" b="0" c="0" d="0"/>
   </lane></right></laneSection></lanes>
 </road>
 <controller name="c" id="11" sequence="0"><control signalId="10" type="0"/></controller>
 <junction id="20" name="j"><connection id="0" incomingRoad="1" connectingRoad="2" contactPoint="start">
  <laneLink from="-1" to="-1"/></connection><controller id="11" type="0" sequence="0"/></junction>
</OpenDRIVE>
"""


def found_in(xodr: str, seed: int, most: int | None, oracle: Oracle) -> list[str]:
    return [
        f"{name}: {said}"
        for name, text in islice(mutations(xodr, random.Random(seed)), most)
        if (said := disagreement(text, oracle.ask(text)))
    ]


def test_the_roads_that_are_changed_load_as_they_are(oracle: Oracle) -> None:
    answer = oracle.ask(BASE)
    assert len(answer.waypoints) > 50
    assert not disagreement(BASE, answer)


def test_changes_in_one_place_end_as_in_the_client(oracle: Oracle) -> None:
    assert found_in(BASE, 1, 120, oracle) == []


@pytest.mark.long
def test_every_change_in_one_place_ends_as_in_the_client(oracle: Oracle) -> None:
    assert found_in(BASE, 2, None, oracle) == []


@pytest.mark.long
@pytest.mark.parametrize("town", ["Lite01", "Lite:seed=7,size=200"])
def test_changes_of_a_town_end_as_in_the_client(town: str, oracle: Oracle) -> None:
    assert found_in(generate(town), 3, 150, oracle) == []


def test_the_oracle_outlives_what_kills_the_client(oracle: Oracle) -> None:
    dangling = BASE.replace('signalId="10"', 'signalId="99"')
    assert oracle.ask(dangling).why == "died: SIGSEGV"
    assert oracle.ask(BASE).waypoints
    assert road_oracle.STEP_M == 5.0


@pytest.mark.long
def test_a_changed_map_can_be_driven_painted_and_walked() -> None:
    loaded = 0
    for _, text in islice(mutations(BASE, random.Random(4)), 120):
        with contextlib.suppress(MapError):
            network = RoadNetwork.parse("map", text)
            loaded += 1
            scene = Scene.build(network, 0)
            assert scene.ground.levels
            assert network.spawn_points() or "driving" not in {lane.kind for lane in network.lanes}
            Signage(network, itertools.count(1).__next__).advance(0.1)
            with contextlib.suppress(ValueError):
                mesh.build(network)
    assert loaded > 50
