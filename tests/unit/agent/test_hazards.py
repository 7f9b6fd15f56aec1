"""Hazards on the route ahead, over plain data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from carla_td3.env import privileged
from carla_td3.env.car import Motion
from carla_td3.env.hazards import (
    BEARINGS,
    FRONT_M,
    NOTHING,
    RANGE_M,
    STAND_BEFORE_LINE_M,
    Hazards,
    Light,
    OtherActors,
    StopLine,
    World,
    by_bearing,
    hazards,
    nearest,
    target_speed,
)
from carla_td3.env.route_line import Route
from carla_td3.env.stop_signs import StopBox, StopSignWatch
from tests.unit.agent.roads import pose, road, state

Pose = tuple[float, float, float, float]

NOBODY = np.full(len(BEARINGS) - 1, math.inf)
CAR = (2.3, 1.0)
WALKER = (0.2, 0.2)


STRAIGHT = road((200, 0.0))
BEND = road((30, 0.0), (13, 1 / 8), (60, 0.0))
JUNCTION = road((200, 0.0), junction=slice(30, 42))


def others(*rows: Pose, half: tuple[float, float] = CAR) -> OtherActors:
    """Boxes of (x, y, yaw, speed) that go where they point."""
    x, y, yaw, speed = np.array(rows).T
    velocity = np.stack((speed * np.cos(yaw), speed * np.sin(yaw)), axis=1)
    return OtherActors(np.stack((x, y), axis=1), yaw, np.full((len(x), 2), half), velocity, np.zeros(len(x)))


def before(on: Route, s_m: float = 10.0, speed_mps: float = 6.0, **world: Any) -> Hazards:
    x, y, _ = pose(on, s_m)
    place = on.project(x, y)
    motion = Motion(1, x, y, place.yaw, speed_mps * math.cos(place.yaw), speed_mps * math.sin(place.yaw))
    return hazards(on, place, motion, World(**world))


def at(on: Route, s_m: float, right_m: float = 0.0, turned: float = 0.0, speed_mps: float = 0.0) -> Pose:
    """A pose beside a route, turned against it."""
    x, y, yaw = pose(on, s_m, right_m)
    return x, y, yaw + turned, speed_mps


def test_nothing_is_ahead_on_an_empty_road():
    assert before(STRAIGHT) == NOTHING


@pytest.mark.parametrize("on", [STRAIGHT, BEND])
@pytest.mark.parametrize("metres", [10.0, 25.0, 40.0])
def test_a_gap_is_bumper_to_bumper_along_the_route(on: Route, metres: float):
    seen = before(on, vehicles=others(at(on, 10.0 + metres, speed_mps=3.0)))
    assert seen.lead_gap_m == pytest.approx(metres - FRONT_M - CAR[0], abs=0.5)
    assert seen.lead_speed_mps == pytest.approx(3.0, abs=0.1)


def test_the_nearest_car_ahead_leads():
    cars = others(at(STRAIGHT, 40.0), at(STRAIGHT, 25.0, speed_mps=2.0), at(STRAIGHT, 3.0, speed_mps=9.0))
    seen = before(STRAIGHT, vehicles=cars)
    assert seen.lead_gap_m == pytest.approx(15.0 - FRONT_M - CAR[0])
    assert seen.lead_speed_mps == pytest.approx(2.0)


@pytest.mark.parametrize(("on", "right_m"), [(STRAIGHT, 2.6), (BEND, 3.5), (BEND, -3.5)])
def test_a_car_beside_the_lane_is_none(on: Route, right_m: float):
    assert before(on, vehicles=others(at(on, 36.0, right_m))) == NOTHING


def test_a_car_that_stands_half_in_the_lane_is_one():
    assert before(STRAIGHT, vehicles=others(at(STRAIGHT, 30.0, 2.0))).lead_gap_m < 20.0


def test_one_that_comes_in_our_lane_has_a_negative_speed():
    seen = before(STRAIGHT, vehicles=others(at(STRAIGHT, 40.0, 0.5, math.pi, 5.0)))
    assert seen.lead_speed_mps == pytest.approx(-5.0)


def test_oncoming_traffic_in_its_lane_is_none():
    cars = others(*(at(BEND, s, -3.5, math.pi, 8.0) for s in range(20, 60, 5)))
    assert before(BEND, vehicles=cars) == NOTHING


@pytest.mark.parametrize("end_m", [190.0, 197.0])
def test_a_car_behind_the_routes_end_is_still_ahead(end_m: float):
    car = others((205.0, 0.0, 0.0, 0.0))
    assert before(STRAIGHT, end_m, vehicles=car).lead_gap_m == pytest.approx(205.0 - end_m - FRONT_M - CAR[0])


@pytest.mark.parametrize(
    ("right_m", "across_mps", "is_one"),
    [(0.0, 0.0, True), (5.0, -1.4, True), (-5.0, 1.4, True), (5.0, 1.4, False), (5.0, 0.0, False), (9.5, -1.4, False)],
)
def test_a_walker_on_the_path_or_walking_into_it_is_a_hazard(right_m: float, across_mps: float, is_one: bool):
    walker = others(at(STRAIGHT, 30.0, right_m, math.copysign(math.pi / 2, across_mps), abs(across_mps)), half=WALKER)
    seen = before(STRAIGHT, walkers=walker)
    assert math.isfinite(seen.walker_gap_m) is is_one
    if is_one:
        assert seen.walker_gap_m == pytest.approx(20.0 - FRONT_M - WALKER[0])
        assert seen.walker_lateral_m == pytest.approx(right_m)
        assert seen.walker_lateral_mps == pytest.approx(across_mps)


def test_only_the_light_of_the_routes_own_lane_counts():
    lines = (
        StopLine(25.0, -3.5, math.pi, Light.RED),  # the lane beside, the other way
        StopLine(28.0, 0.0, math.pi / 2, Light.RED),  # across
        StopLine(5.0, 0.0, 0.0, Light.RED),  # behind
        StopLine(30.0, 0.0, 0.0, Light.YELLOW),
        StopLine(50.0, 0.0, 0.0, Light.RED),  # the next one
    )
    seen = before(STRAIGHT, stop_lines=lines)
    assert seen.light is Light.YELLOW
    assert seen.light_gap_m == pytest.approx(20.0 - FRONT_M)


def test_a_line_just_passed_still_holds_the_car():
    line = StopLine(30.0, 0.0, 0.0, Light.RED)
    assert before(STRAIGHT, 30.0 - FRONT_M + 1.0, stop_lines=(line,)).light is Light.RED
    assert before(STRAIGHT, 30.0 - FRONT_M + 3.0, stop_lines=(line,)).light is Light.NONE


SIGN = StopBox(x_m=30.0, y_m=1.0, yaw=math.pi / 2.0, half_x_m=2.0, half_y_m=1.5, travel=0.0)


def test_a_stop_sign_holds_until_the_car_has_stood():
    others_signs = (replace(SIGN, x_m=20.0, travel=math.pi), replace(SIGN, x_m=22.0, y_m=6.0))
    seen = before(STRAIGHT, 10.0, stop_signs=(*others_signs, SIGN))
    assert seen.sign_gap_m == pytest.approx(20.0 + STAND_BEFORE_LINE_M)
    assert target_speed(before(STRAIGHT, 29.9, stop_signs=(SIGN,)), 8.0) < 1.0
    assert before(STRAIGHT, 31.6, stop_signs=(SIGN,)) == NOTHING
    watch = StopSignWatch([SIGN])
    for x, speed_mps, asks in (
        (20.0, 5.0, True),
        (29.0, 2.0, True),
        (30.0, 0.0, False),
        (31.0, 2.0, False),
        (32.0, 3.0, True),
    ):
        watch.look(Motion(0, x, 0.0, 0.0, speed_mps, 0.0))
        assert bool(watch.active) is asks


@pytest.mark.parametrize(("from_m", "is_one"), [(-15.0, True), (-60.0, False)])
def test_a_car_that_crosses_in_a_junction_is_a_conflict(from_m: float, is_one: bool):
    crossing = others((36.0, from_m, math.pi / 2, 6.0))
    seen = before(JUNCTION, speed_mps=8.0, vehicles=crossing)
    assert math.isfinite(seen.crossing_gap_m) is is_one
    if is_one:
        assert 20.0 < seen.crossing_gap_m < 26.0
        assert 1.0 <= seen.crossing_s <= 3.0
    assert before(STRAIGHT, speed_mps=8.0, vehicles=crossing).crossing_gap_m == math.inf


def test_a_car_that_follows_us_through_a_junction_is_none():
    assert before(JUNCTION, 28.0, vehicles=others((19.0, 0.0, 0.0, 8.0))) == NOTHING


def test_one_that_turns_is_followed_along_its_turn():
    """It comes towards us and turns left over our lane; going straight it would pass beside us."""
    straight = others((52.0, -3.5, math.pi, 6.0))
    turning = OtherActors(straight.place, straight.yaw, straight.half, straight.velocity, np.array([-0.6]))
    assert before(JUNCTION, 28.0, vehicles=straight) == NOTHING
    assert math.isfinite(before(JUNCTION, 28.0, vehicles=turning).crossing_gap_m)


@pytest.mark.parametrize(
    "seen",
    [
        lambda gap: Hazards(lead_gap_m=gap),
        lambda gap: Hazards(light=Light.RED, light_gap_m=gap),
        lambda gap: Hazards(light=Light.YELLOW, light_gap_m=gap),
        lambda gap: Hazards(sign_gap_m=gap),
        lambda gap: Hazards(walker_gap_m=gap),
        lambda gap: Hazards(crossing_gap_m=gap, crossing_s=1.0),
    ],
)
def test_the_target_speed_falls_to_0_before_each_hazard(seen):
    speeds = [target_speed(seen(gap), 8.0) for gap in np.arange(0.0, 60.0, 0.5)]
    assert speeds[0] == 0.0
    assert speeds[-1] == 8.0
    assert (np.diff(speeds) >= 0.0).all()


def test_the_target_speed_behind_a_moving_car_is_its_own():
    assert target_speed(Hazards(lead_gap_m=3.0, lead_speed_mps=5.0), 8.0) == pytest.approx(5.0)
    assert target_speed(Hazards(light=Light.GREEN, light_gap_m=1.0), 8.0) == 8.0


ON_STRAIGHT = state(STRAIGHT, 10.0)
NOBODY_NEAR = tuple(np.zeros((2, privileged.NEAREST, 4)))


def told(
    seen: Hazards, walkers_m: Any = NOBODY, vehicles_m: Any = NOBODY, listed: Any = NOBODY_NEAR
) -> dict[str, float]:
    """Values of the privileged vector, by name."""
    values = privileged.vector(seen, (walkers_m, vehicles_m), listed, ON_STRAIGHT, np.zeros(2, np.float32))
    return dict(zip(privileged.NAMES, map(float, values), strict=True))


def test_the_privileged_vector_is_bounded():
    assert {name for name, value in told(NOTHING).items() if value != 0.0} == {"speed", "target_speed"}
    at_hand = np.zeros(len(BEARINGS) - 1)
    full = Hazards(0.0, -90.0, Light.RED, -2.5, -1.0, 0.0, 90.0, 90.0, 0.0, 0.0)
    values = privileged.vector(full, (at_hand, at_hand), NOBODY_NEAR, ON_STRAIGHT, np.array((0.5, -0.25), np.float32))
    assert values.shape == (privileged.SIZE,)
    assert values.dtype == np.float32
    assert values[-2:].tolist() == [0.5, -0.25]
    assert np.abs(values).max() == 2.0


def test_a_light_is_told_where_a_camera_can_tell_it():
    def of(light: Light, gap_m: float) -> dict[str, float]:
        values = told(Hazards(light=light, light_gap_m=gap_m))
        return {name: value for name, value in values.items() if "light" in name}

    for light in (Light.RED, Light.YELLOW, Light.GREEN):
        near, far = of(light, 20.0), of(light, 30.0)
        assert [name for name, value in near.items() if value] == [f"light_{light.name.lower()}", "light_near"]
        assert [name for name, value in far.items() if value] == ["light_near"]
    assert of(Light.GREEN, 20.0)["light_green"] > 2.0 * of(Light.RED, 20.0)["light_red"]


def test_a_walker_is_told_where_a_camera_can_tell_her():
    def of(gap_m: float) -> list[float]:
        values = told(Hazards(walker_gap_m=gap_m, walker_lateral_m=2.0, walker_lateral_mps=-1.5))
        return [value for name, value in values.items() if "walker" in name and "_at_" not in name]

    assert of(0.0) == [2.0, 0.5, -1.0]
    assert of(12.5) == [1.0, 0.5, -1.0]
    assert of(30.0) == [0.0, 0.0, 0.0]


def test_who_is_where_is_told_by_bearing():
    for yaw in (0.0, 2.0, math.pi, -3.0):
        cos, sin = math.cos(yaw), math.sin(yaw)

        def at(ahead_m: float, right_m: float, cos: float = cos, sin: float = sin) -> Pose:
            return 5.0 + cos * ahead_m - sin * right_m, 7.0 + sin * ahead_m + cos * right_m, 0.0, 0.0

        people = others(
            at(20.0, 0.0), at(10.0, 0.5), at(10.0, 9.0), at(8.0, -9.0), at(-3.0, 0.0), at(0.0, 9.0), at(70.0, 0.0)
        )
        found = by_bearing(Motion(0, 5.0, 7.0, yaw, 0.0, 0.0), people)
        middle = len(found) // 2
        near = {place - middle: gap for place, gap in enumerate(found) if math.isfinite(gap)}
        assert near == pytest.approx({0: math.hypot(10.0, 0.5), 4: 181.0**0.5, -5: 145.0**0.5}, abs=1e-6)
    assert (by_bearing(Motion(0, 5.0, 7.0, 0.0, 0.0, 0.0), OtherActors()) == math.inf).all()


def test_people_in_sight_weigh_twice():
    walkers, vehicles = NOBODY.copy(), NOBODY.copy()
    walkers[0], vehicles[-1] = 12.5, 30.0
    values = told(NOTHING, walkers, vehicles)
    assert {name: value for name, value in values.items() if "_at_" in name and value} == {
        "walker_at_-50": 1.0,
        "vehicle_at_50": 0.25,
    }


@pytest.mark.parametrize("yaw", [0.0, 2.0, math.pi, -3.0])
def test_the_nearest_ones_are_told_by_where_they_are_and_how_they_move(yaw: float):
    cos, sin = math.cos(yaw), math.sin(yaw)

    def at(ahead_m: float, right_m: float, turned: float, speed_mps: float) -> Pose:
        place = 5.0 + cos * ahead_m - sin * right_m, 7.0 + sin * ahead_m + cos * right_m
        return *place, yaw + turned, speed_mps

    far = at(RANGE_M, 12.0, 0.0, 1.0)
    some = others(at(20.0, -5.0, math.pi, 1.5), at(8.0, 2.0, math.pi / 2, 1.2), at(-5.0, 0.0, 0.0, 1.0), far)
    found = nearest(Motion(0, 5.0, 7.0, yaw, 3.0, 0.0), some, privileged.NEAREST)
    expected = np.zeros((privileged.NEAREST, 4))
    expected[:2] = (8.0, 2.0, 0.0, 1.2), (20.0, -5.0, -1.5, 0.0)  # one is behind, one too far away
    np.testing.assert_allclose(found, expected, atol=1e-9)
    values = told(NOTHING, listed=(found, found))
    names = ("ahead", "right", "speed_ahead", "speed_right")
    assert [values[f"person_{name}_1"] for name in names] == pytest.approx([1.0, -0.25, -1.0, 0.0])
    assert [values[f"vehicle_{name}_1"] for name in names] == pytest.approx([1.0, -0.25, -0.15, 0.0])
    assert all(values[f"{kind}_{name}_2"] == 0.0 for kind in ("person", "vehicle") for name in names)


def test_of_a_crowd_the_nearest_are_told():
    crowd = others(*((float(ahead), 0.0, 0.0, 1.0) for ahead in range(28, 2, -1)))
    found = nearest(Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0), crowd, 8)
    assert found[:, 0].tolist() == list(range(3, 11))
    assert not nearest(Motion(0, 0.0, 0.0, 0.0, 0.0, 0.0), OtherActors(), 8).any()
