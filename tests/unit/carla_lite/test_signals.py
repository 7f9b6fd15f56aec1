"""Signals read from OpenDRIVE, against the real client's landmarks and lanes, and the cycle of the lights."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from carla_lite.actors.signage import Signage
from carla_lite.actors.traffic_lights import LightState
from carla_lite.roads import signals
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.signals import BEFORE_JUNCTION_M, SignalType
from carla_lite.scenery.sign_faces import LampState, face_of
from carla_lite.scenery.statics import TAG_POLE
from carla_lite.scenery.streetscape import furnish
from carla_lite.towns.generator import generate
from tests.unit.carla_lite.places import client_map, network_of

carla = pytest.importorskip("carla")


def signage(network: RoadNetwork) -> Signage:
    numbers = itertools.count(1)
    return Signage(network, lambda: next(numbers))


@pytest.mark.parametrize("name", ["Lite01", "Town01", "Town02", "Town10HD"])
def test_a_signal_stands_where_the_clients_landmark_is(name: str):
    network = network_of(name)
    landmarks = {landmark.id: landmark.transform for landmark in client_map(name).get_all_landmarks()}
    assert len(network.signals.signals) >= 20
    for signal in network.signals.signals:
        there = landmarks[signal.id]
        assert math.dist((there.location.x, there.location.y, there.location.z), (signal.x, signal.y, signal.z)) < 1e-3
        assert abs(math.remainder(math.radians(there.rotation.yaw) - signal.yaw, math.tau)) < 1e-3


@pytest.mark.parametrize("name", ["Lite01", "Town01", "Town02", "Town10HD"])
def test_each_lane_into_a_junction_stops_before_it(name: str):
    network = network_of(name)
    lights = [signal for signal in network.signals.signals if signal.type is SignalType.LIGHT]
    for stop in (stop for light in lights for stop in light.stops):
        waypoint = client_map(name).get_waypoint(carla.Location(stop.x, stop.y, stop.z))
        assert not waypoint.is_junction
        assert abs(math.remainder(math.radians(waypoint.transform.rotation.yaw) - stop.yaw, math.tau)) < 0.05
        assert waypoint.transform.location.distance(carla.Location(stop.x, stop.y, stop.z)) < 0.1
        assert waypoint.next(BEFORE_JUNCTION_M + 0.5)[0].is_junction
    assert all(light.stops for light in lights)


def test_a_maps_signals_are_what_carla_makes_actors_of():
    network = network_of("Lite01")
    kinds = [signal.type for signal in network.signals.signals]
    numbers = {
        SignalType.LIGHT: "1000001",
        SignalType.STOP: "206",
        SignalType.YIELD: "205",
        SignalType.SPEED_LIMIT: "274",
    }
    assert {kind: kinds.count(kind) for kind in SignalType} == {
        kind: network.xodr.count(f' type="{number}"') for kind, number in numbers.items()
    }
    assert {sign.blueprint.id for sign in signage(network).signs} == {
        *("traffic.traffic_light", "traffic.stop", "traffic.yield"),
        *(f"traffic.speed_limit.{kmh}" for kmh in (30, 40, 50, 60)),
    }


def test_lights_without_a_controller_are_groups_by_themselves():
    text = re.sub(
        r"<controller [^>]*/>|<controller [^>]*[^/]>.*?</controller>", "", generate("Lite01"), flags=re.DOTALL
    )
    found = RoadNetwork.parse("uncontrolled", text).signals
    lights = [signal for signal in found.signals if signal.type is SignalType.LIGHT]
    assert [group.controllers for group in found.groups] == [((light.id,),) for light in lights]


def test_the_arms_take_turns_in_the_order_of_sequence():
    network = network_of("Lite01")
    root = ET.fromstring(network.xodr)
    for junction in root.iterfind("junction"):
        junction[:] = reversed(junction)
    found = RoadNetwork.parse("backwards", ET.tostring(root, encoding="unicode")).signals
    assert found.groups == network.signals.groups
    assert any(len(group.controllers) > 2 for group in found.groups)


def test_a_sign_above_the_road_has_an_arm():
    network = network_of("Lite01")
    stop = next(signal for signal in network.signals.signals if signal.type is SignalType.STOP)
    (lane_stop,) = stop.stops
    over = replace(stop, id="over", x=lane_stop.x, y=lane_stop.y, z=5.0)
    hanging = replace(network, signals=signals.Signals((stop, over)))
    poles = [box for box in furnish(hanging, 0) if box.tag == TAG_POLE and not box.lamp]
    alone, mast, arm = sorted(poles, key=lambda box: box.top)
    face = face_of(over, 0.0, LampState.DARK)
    assert face.pose.z == 5.0
    assert (alone.x, alone.y) == (stop.x, stop.y)
    assert arm.bottom == pytest.approx(face.pose.z + face.extent[2])
    assert arm.top == pytest.approx(mast.top, abs=0.1)
    ends = [(arm.x + way * arm.half_length_m * arm.cos, arm.y + way * arm.half_length_m * arm.sin) for way in (1, -1)]
    for place in ((over.x, over.y), (mast.x, mast.y)):
        assert min(math.dist(end, place) for end in ends) < 1e-6
    for lane in network.lanes:
        if lane.kind == "driving":
            assert (np.hypot(*(lane.centre[:, :2] - (mast.x, mast.y)).T) > 0.5 * lane.width_m).all()


def test_of_two_signals_with_one_id_the_last_stands():
    first, second = network_of("Lite01").signals.signals[:2]
    text = generate("Lite01").replace(f'id="{second.id}"', f'id="{first.id}"')
    found = RoadNetwork.parse("twice", text).signals
    (only,) = (signal for signal in found.signals if signal.id == first.id)
    there = carla.Map("twice", text).get_all_landmarks_from_id(first.id)[0].transform.location
    assert math.dist((there.x, there.y, there.z), (only.x, only.y, only.z)) < 1e-3
    assert {light for group in found.groups for turn in group.controllers for light in turn} <= {
        signal.id for signal in found.signals
    }


def states(signs: Signage) -> list[list[str]]:
    return [[light.state.name for light in group.lights] for group in signs.groups]


def test_one_controller_at_a_time_has_green():
    signs = signage(network_of("Lite01"))
    group = signs.groups[0]
    seen: list[tuple[str, ...]] = []
    durations: list[int] = []
    for _ in range(1 + 16 * len(group.controllers) * 10):
        now = tuple(light.state.name for light in group.lights)
        if not seen or seen[-1] != now:
            seen.append(now)
            durations.append(0)
        durations[-1] += 1
        signs.advance(0.1)
    turns = len(group.controllers)
    expected = [
        tuple(colour if light in controller.lights else "RED" for light in group.lights)
        for controller in group.controllers
        for colour in ("GREEN", "YELLOW", "RED")
    ]
    assert seen[: 3 * turns] == expected
    # CARLA's 10, 3 and 2 s; a state ends with the first tick after its time.
    assert all(
        abs(ticks - wanted) <= 1 for ticks, wanted in zip(durations[: 3 * turns], [100, 30, 20] * turns, strict=True)
    )


def test_a_frozen_junction_keeps_what_was_set():
    signs = signage(network_of("Lite01"))
    group, other = signs.groups[:2]
    group.frozen = True
    group.lights[1].state = LightState.GREEN
    for _ in range(400):
        signs.advance(0.05)
    assert [light.state for light in group.lights[:2]] == [LightState.GREEN, LightState.GREEN]
    assert other.controllers[0].lights[0].state is not LightState.GREEN
    group.reset()
    assert group.lights[1].state is LightState.RED


def test_two_worlds_of_one_map_show_the_same_at_every_tick():
    first, second = (signage(network_of("Lite01")) for _ in range(2))
    for _ in range(700):
        first.advance(0.05)
        second.advance(0.05)
        assert states(first) == states(second)
        assert first.records == second.records
