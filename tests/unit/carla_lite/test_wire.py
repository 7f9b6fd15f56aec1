"""Layouts against the protocol reference: sizes, offsets, units, and what is refused."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_lite.actors.actor import Actor, Identity, Vehicle, compose
from carla_lite.blueprints.catalogue import CATALOGUE, SPECTATOR
from carla_lite.protocol import wire
from carla_lite.scenery.camera import Pose

ANGLES = st.floats(-3.1, 3.1)
PITCHES = st.floats(-1.5, 1.5)
METRES = st.floats(-1e4, 1e4)
POSES = st.builds(Pose, METRES, METRES, METRES, PITCHES, ANGLES, ANGLES)


def test_sizes_are_those_of_the_reference():
    assert wire.HEADER.size == 48
    assert wire.WORLD_HEAD.size == 36
    assert wire.VEHICLE_RECORD.size == wire.PLAIN_RECORD.size == 119
    assert len(wire.token(1, 2001)) == 24


def test_a_token_names_stream_and_port_but_no_host():
    assert wire.token(0x01020304, 2001)[:8] == bytes((4, 3, 2, 1, 0xD1, 0x07, 1, 0))


def test_a_transform_is_degrees_outside_and_radians_inside():
    x, y, z, pitch, yaw, roll = wire.place([[1, 2, 3], [10, 90, -45]])
    assert (x, y, z) == (1, 2, 3)
    assert (pitch, yaw, roll) == pytest.approx((math.radians(10), math.pi / 2, -math.pi / 4))
    assert wire.transform(1, 2, 3, yaw=math.pi / 2) == [[1, 2, 3], [0, pytest.approx(90), 0]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", range(3))
def test_numbers_that_are_none_are_refused(value, index):
    numbers = [0.0, 0.0, 0.0]
    numbers[index] = value
    with pytest.raises(wire.RpcError, match="expected finite numbers"):
        wire.vector(numbers)
    with pytest.raises(wire.RpcError):
        wire.place([[0, 0, 0], numbers])


def settings(fixed):
    return [True, False, fixed, True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True]


def test_settings_keep_what_they_do_not_understand():
    read = wire.settings(settings([True, 0.1]))
    assert (read.synchronous, read.fixed_delta_s, read.delta_s) == (True, 0.1, 0.1)
    assert read.raw == settings([True, 0.1])
    assert wire.settings(settings([False])).delta_s == 0.05


@pytest.mark.parametrize("fixed", [-0.1, math.nan, math.inf])
def test_a_step_out_of_range_is_refused(fixed):
    with pytest.raises(wire.RpcError, match="fixed_delta_seconds is"):
        wire.settings(settings([True, fixed]))


def test_a_vehicles_record_has_the_references_offsets():
    blueprint = CATALOGUE["vehicle.tesla.model3"]
    vehicle = Vehicle(Identity(7, blueprint, blueprint.values({})), Pose(1, 2, 3, 0.1, 0.2, 0.3))
    vehicle.body.vx, vehicle.body.yaw_rate = 4.0, math.pi
    vehicle.body.control.throttle, vehicle.body.control.steer = 0.25, -0.5
    vehicle.speed_limit_kmh = 50.0
    record = bytearray(119 + 2)
    vehicle.record(record, 1)
    assert struct.unpack_from("<IB", record, 1) == (7, 1)
    assert struct.unpack_from("<6f", record, 1 + 5) == pytest.approx((1, 2, 3, *map(math.degrees, (0.1, 0.2, 0.3))))
    assert struct.unpack_from("<3f", record, 1 + 29) == pytest.approx((4 * math.cos(0.2), 4 * math.sin(0.2), 0))
    assert struct.unpack_from("<3f", record, 1 + 41) == pytest.approx((0, 0, 180))
    assert struct.unpack_from("<3f", record, 1 + 65) == pytest.approx((0.25, -0.5, 0))
    assert struct.unpack_from("<f", record, 1 + 65 + 19) == (50.0,)
    assert record[0] == record[-1] == 0


@given(POSES)
def test_standing_at_the_origin_changes_no_pose(pose):
    nowhere = Pose(0, 0, 0, 0, 0, 0)
    same = compose(nowhere, pose)
    assert (same.x, same.y, same.z) == pytest.approx((pose.x, pose.y, pose.z), abs=1e-6)
    assert (same.pitch, same.yaw, same.roll) == pytest.approx((pose.pitch, pose.yaw, pose.roll), abs=1e-6)
    assert compose(pose, nowhere) == pose


@given(POSES, POSES, POSES)
def test_attachments_compose_in_any_grouping(a, b, c):
    one, two = compose(compose(a, b), c), compose(a, compose(b, c))
    assert (one.x, one.y, one.z) == pytest.approx((two.x, two.y, two.z), abs=1e-4)


def test_an_actor_two_parents_deep_knows_both():
    blueprint = SPECTATOR
    top = Actor(Identity(1, blueprint, {}), Pose(10, 0, 0, 0, math.pi / 2, 0))
    middle = Actor(Identity(2, blueprint, {}, top), Pose(5, 0, 0, 0, 0, 0))
    leaf = Actor(Identity(3, blueprint, {}, middle), Pose(0, 1, 2, 0, 0, 0))
    assert leaf.hangs_on(top)
    assert leaf.hangs_on(middle)
    assert not top.hangs_on(leaf)
    assert (leaf.pose.x, leaf.pose.y, leaf.pose.z) == pytest.approx((9, 5, 2))
