"""The road network of an OpenDRIVE text: lanes, painted lines, speed, ground, spawn points, and mistakes."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from carla_lite.motion.physics import Body, Control, advance
from carla_lite.roads import network as roads
from carla_lite.roads.network import MapError, RoadNetwork
from carla_lite.roads.spawn_points import DROP_M, SpawnPoint, has_room
from carla_lite.roads.speed_limits import SpeedLimits
from tests.unit.carla_lite.places import bridge

FLAT = '<elevation s="0" a="0" b="0" c="0" d="0"/>'


def lane(lane_id: int, width: float = 3.5, kind: str = "driving", inside: str = "") -> str:
    return f'<lane id="{lane_id}" type="{kind}"><width sOffset="0" a="{width}" b="0" c="0" d="0"/>{inside}</lane>'


def mark(kind: str, start: float = 0.0, color: str = "white", width: float = 0.12) -> str:
    return f'<roadMark sOffset="{start}" type="{kind}" color="{color}" width="{width}"/>'


def straight_road(  # 100 m to the east along y = 20
    *, left: str = "", centre: str = "", right: str = "", of_type: str = "", elevation: str = FLAT, offset: float = 0.0
) -> str:
    return f"""<OpenDRIVE><header revMajor="1" revMinor="4"/>
    <road id="7" length="100" junction="-1">{of_type}
      <planView><geometry s="0" x="0" y="20" hdg="0" length="100"><line/></geometry></planView>
      <elevationProfile>{elevation}</elevationProfile>
      <lanes><laneOffset s="0" a="{offset}" b="0" c="0" d="0"/><laneSection s="0"><left>{left}</left>
        <center><lane id="0" type="none">{centre}</lane></center><right>{right}</right></laneSection></lanes>
    </road></OpenDRIVE>"""


def test_lanes_keep_right_in_carlas_frame() -> None:
    network = RoadNetwork.parse("straight", straight_road(left=lane(1), right=lane(-1)))
    there, back = sorted(network.lanes, key=lambda one: one.lane_id)
    # OpenDRIVE's y = 20 is CARLA's −20; south of it, to the right of eastbound traffic, y is greater.
    assert there.centre[[0, -1], :2].tolist() == [[0.0, -18.25], [100.0, -18.25]]
    assert back.centre[[0, -1], :2].tolist() == [[100.0, -21.75], [0.0, -21.75]]
    assert there.left[0, 1] == back.left[0, 1] == -20.0
    assert network.bounds == (0.0, -23.5, 100.0, -16.5)


def test_lane_offset_moves_every_lane() -> None:
    (only,) = RoadNetwork.parse("offset", straight_road(right=lane(-1), offset=1.75)).lanes
    assert only.centre[:, 1] == pytest.approx(np.full(101, -20.0))


def test_a_border_is_no_width_as_in_the_client() -> None:
    bordered = '<lane id="-2" type="shoulder"><border sOffset="0" a="-5" b="0" c="0" d="0"/></lane>'
    network = RoadNetwork.parse("border", straight_road(right=lane(-1) + bordered))
    assert {one.lane_id: float(one.width_m[0]) for one in network.lanes} == {-1: 3.5}


def test_lanes_keep_left_where_the_road_says_so() -> None:
    xodr = straight_road(left=lane(1), right=lane(-1)).replace("<road ", '<road rule="LHT" ')
    back, there = sorted(RoadNetwork.parse("left", xodr).lanes, key=lambda one: one.lane_id)
    assert there.centre[[0, -1], :2].tolist() == [[0.0, -21.75], [100.0, -21.75]]
    assert back.centre[[0, -1], :2].tolist() == [[100.0, -18.25], [0.0, -18.25]]
    assert there.right[0, 1] == back.right[0, 1] == -20.0


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (("3.5", "2.3"), [(0.0, -18.85, 0.0), (100.0, -21.15, 3.141593)]),
        (('junction="-1"', 'junction=""'), [(0.0, -18.25, 0.0), (100.0, -21.75, 3.141593)]),
    ],
)
def test_a_map_without_room_has_carlas_spawn_points(change: tuple[str, str], places: list[object]) -> None:
    network = RoadNetwork.parse("narrow", straight_road(left=lane(1), right=lane(-1)).replace(*change))
    assert sorted((one.x, round(one.y, 6), round(abs(one.yaw), 6)) for one in network.spawn_points()) == places


def test_painted_lines_begin_and_end_at_their_offsets() -> None:
    xodr = straight_road(right=lane(-1, inside=mark("broken", 0) + mark("solid", 60) + mark("none", 90)))
    broken, solid = RoadNetwork.parse("lines", xodr).markings
    assert (broken.kind, *broken.points[[0, -1], 0]) == ("broken", 0.0, 60.0)
    assert (solid.kind, *solid.points[[0, -1], 0]) == ("solid", 60.0, 90.0)
    assert solid.points[:, 1] == pytest.approx(-16.5)


def test_a_double_line_is_two_lines_with_a_gap_between() -> None:
    xodr = straight_road(left=lane(1), centre=mark("solid broken", color="yellow"), right=lane(-1))
    left, right = sorted(RoadNetwork.parse("double", xodr).markings, key=lambda one: float(one.points[0, 1]))
    assert {left.kind, right.kind} == {"solid", "broken"}
    assert left.color == right.color == "yellow"
    assert [left.points[0, 1], right.points[0, 1]] == pytest.approx([-20.12, -19.88])


def test_a_kerb_is_a_marking_of_its_own_kind() -> None:
    xodr = straight_road(right=lane(-1, inside=mark("curb")))
    assert [marking.kind for marking in RoadNetwork.parse("kerb", xodr).markings] == ["curb"]


@pytest.mark.parametrize(
    ("maximum", "unit", "expected_mps"),
    [
        ("90", "km/h", 25.0),
        *((f" 90{rest}", unit, 25.0) for rest in ("", " or so") for unit in ("KM/H", "kmh", "kph")),
        ("3", "furlong", 50 / 3.6),
        ("25", "mph", 11.176),
        ("13", "m/s", 13.0),
        ("13", "", 13.0),
        ("undefined", "mph", 50 / 3.6),
    ],
)
def test_speed_limits_are_metres_per_second(maximum: str, unit: str, expected_mps: float) -> None:
    of_type = f'<type s="0" type="town"><speed max="{maximum}" unit="{unit}"/></type>'
    (only,) = RoadNetwork.parse("speed", straight_road(right=lane(-1), of_type=of_type)).lanes
    assert only.speed_limit_mps == pytest.approx(expected_mps)


def test_a_lanes_own_limit_beats_the_roads() -> None:
    of_type = '<type s="0" type="town"><speed max="90" unit="km/h"/></type>'
    slow = lane(-1, inside='<speed sOffset="0" max="5" unit="m/s"/>')
    (only,) = RoadNetwork.parse("speed", straight_road(right=slow, of_type=of_type)).lanes
    assert only.speed_limit_mps == 5.0


def test_height_follows_a_slope_and_is_constant_on_flat_ground() -> None:
    slope = '<elevation s="0" a="3" b="0.1" c="0" d="0"/>'
    hill = RoadNetwork.parse("hill", straight_road(right=lane(-1), elevation=slope))
    for x in (0.0, 10.3, 55.5, 99.0):
        assert hill.height(x, -18.0) == pytest.approx(3 + 0.1 * x, abs=0.03)
    assert hill.height(50.0, 500.0) == pytest.approx(8.0, abs=0.2), "beyond the road the nearest place counts"
    level = '<elevation s="0" a="2.5" b="0" c="0" d="0"/>'
    assert RoadNetwork.parse("level", straight_road(right=lane(-1), elevation=level)).height(1e4, 0) == 2.5


def test_two_roads_above_one_another_have_two_heights() -> None:
    network = bridge()
    for x in np.arange(0.0, 100.0, 0.7).tolist():
        assert network.height(x, -18.25, 0.3) == pytest.approx(0.0, abs=0.01), x
    for lane in network.lanes:
        if lane.road_id == 8:
            for x, y, z in lane.centre[1:-1].tolist():
                assert network.height(x, y, z + 0.1) == pytest.approx(z, abs=0.12), y
                assert network.height(x, y) == pytest.approx(z, abs=0.12), "what falls from the sky lands on the upper"
    assert network.height(50.0, -20.0, 4.0) == pytest.approx(0.0, abs=0.01)
    places = [place for place in network.spawn_points() if abs(place.x - 50.0) < 3.0 and abs(place.y + 20.0) < 3.0]
    assert [place.z for place in places] == [DROP_M], "a car has room under the bridge"


def test_a_car_drives_over_a_bridge_and_under_it() -> None:
    network = bridge()
    lower = Body(x=5.0, y=-18.25, vx=15.0)
    upper = Body(
        x=51.75, y=90.0, z=network.height(51.75, 90.0), yaw=-0.5 * math.pi, vx=15.0, control=Control(throttle=0.4)
    )
    for _ in range(100):
        advance(lower, 0.05, network.ground)
        assert lower.z == pytest.approx(0.0, abs=0.01)
    heights = []
    while upper.y > -95.0:
        advance(upper, 0.05, network.ground)
        heights.append(upper.z)
    assert max(heights) == pytest.approx(7.0, abs=0.15)
    assert max(abs(b - a) for a, b in pairwise(heights)) < 0.3, "it goes up and down without a step"


def test_a_limit_is_that_of_the_road_at_its_height() -> None:
    limits = SpeedLimits(bridge())
    assert limits.at(50.0, -20.0, 6.3) == pytest.approx(108.0)
    assert limits.at(50.0, -20.0, 0.1) == limits.at(10.0, -18.0, -900.0) == 50.0


@pytest.mark.parametrize("name", roads.MAP_NAMES)
def test_spawn_points_keep_their_distances(name: str) -> None:
    network = roads.load(name)
    places = np.array([(point.x, point.y) for point in network.spawn_points()])
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(len(places)) * 100
    junctions = np.concatenate([lane.centre[:, :2] for lane in network.lanes if lane.in_junction])
    assert len(places) > 100
    assert apart.min() >= 10.0
    assert np.linalg.norm(places[:, None] - junctions[None], axis=2).min() >= 6.0
    assert {point.z for point in network.spawn_points()} == {0.5}


def test_a_spawn_point_is_clear_of_other_roads_ground() -> None:
    beside_a_ramp = SpawnPoint(10.0, 0.0, DROP_M, 0.5 * math.pi)
    assert has_room(beside_a_ramp, lambda _x, _y, _z: 0.0)
    assert has_room(beside_a_ramp, lambda x, _y, _z: 2.0 if x > 12.0 else 0.0)
    assert not has_room(beside_a_ramp, lambda x, _y, _z: 2.0 if x > 11.0 else 0.0)
    assert not has_room(beside_a_ramp, lambda _x, y, _z: 2.0 if y < -5.0 else 0.0)


@pytest.mark.parametrize("way", [-1, 1])
def test_places_on_a_steep_road_face_along_its_slope(way: int) -> None:
    steep = '<elevation s="0" a="0" b="0.2" c="0" d="0"/>'
    right, left = (lane(-1), "") if way < 0 else ("", lane(1))
    places = RoadNetwork.parse("steep", straight_road(left=left, right=right, elevation=steep)).spawn_points()
    assert len(places) >= 9, "one each 10 m, save at the lower end"
    for place in places:
        assert place.pitch == pytest.approx(math.atan(-0.2 * way))


def test_spawn_points_are_the_same_each_time() -> None:
    xodr = roads.load("Lite01").xodr
    assert RoadNetwork.parse("a", xodr).spawn_points() == RoadNetwork.parse("b", xodr).spawn_points()


@pytest.mark.parametrize("name", ["Lite01", "/Game/Carla/Maps/Lite01", "Carla/Maps/Lite01"])
def test_a_town_is_found_by_all_of_carlas_names(name: str) -> None:
    assert roads.load(name).name == "Lite01"


def test_a_file_is_named_after_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "Village.xodr"
    path.write_text(straight_road(right=lane(-1)), encoding="utf-8")
    assert roads.load(str(path)).name == "Village"


MISTAKES = {
    "not XML": ("this is no map", "is not XML"),
    "no roads": ("<OpenDRIVE><header/></OpenDRIVE>", "has no roads"),
    "another format": ("<net><road id='1'/></net>", "root element <net>"),
    "no lane": (straight_road(), "no lane"),
    "a word for a number": (
        straight_road(right=lane(-1)).replace('length="100"', 'length="long"'),
        "whose length is 0",
    ),
    "no plan view": (straight_road(right=lane(-1)).replace("planView", "plan"), "no <geometry> of the planView"),
    "an unknown shape": (straight_road(right=lane(-1)).replace("<line/>", "<bezier/>"), "line, arc, spiral"),
    "an arc without a bend": (
        straight_road(right=lane(-1)).replace("<line/>", "<arc/>"),
        "curvature 0, expected a <line>",
    ),
    "a place beyond all maps": (straight_road(right=lane(-1)).replace('x="0"', 'x="1e9"'), "no place within ±1000 km"),
    "a place that is none": (straight_road(right=lane(-1)).replace('x="0"', 'x="nan"'), "no place within"),
    "more road than fits": (straight_road(right=lane(-1)).replace('"100"', '"1e8"'), "200000 km of lanes"),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_map_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "Broken.xodr"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MapError) as caught:
        roads.load(str(path))
    assert said in str(caught.value)
    assert "Broken" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_map_names_what_exists(tmp_path: Path) -> None:
    with pytest.raises(
        MapError, match=r"Town99 does not exist: expected one of Lite01, Lite02, Lite:seed=.* or the path"
    ):
        roads.load("Town99")
    with pytest.raises(MapError, match="does not exist"):
        roads.load(str(tmp_path / "nothing.xodr"))


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "picture.xodr"
    path.write_bytes(b"\x89PNG\xff\xfe\x00")
    with pytest.raises(MapError, match="is not XML"):
        roads.load(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_file_is_read_in_any_encoding_that_unreal_reads(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "Town.xodr"
    path.write_bytes(straight_road(right=lane(-1)).replace("<road ", '<road name="Straße" ').encode(encoding))
    assert len(roads.load(str(path)).lanes) == 1
