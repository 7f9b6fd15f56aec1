"""Traffic lights and signs through the real client: what programs ask of them, who stops, what a camera sees."""

from __future__ import annotations

from collections.abc import Iterator

import carla
import numpy as np
import pytest

from tests.conftest import Server, StartServer
from tests.wire.conftest import DELTA_S, Session, session_of
from tests.wire.test_client_traffic import driven

RED, YELLOW, GREEN, OFF = (getattr(carla.TrafficLightState, name) for name in ("Red", "Yellow", "Green", "Off"))


@pytest.fixture
def lit(module_server: Server) -> Iterator[Session]:
    session = session_of("127.0.0.1", module_server.port)
    session.world.freeze_all_traffic_lights(False)
    session.world.reset_all_traffic_lights()
    session.world.tick()
    yield session
    session.close()
    session.give_back()


def lights_of(session: Session) -> list[carla.TrafficLight]:
    return sorted(session.world.get_actors().filter("traffic.traffic_light"), key=lambda light: light.id)


def before(session: Session, light: carla.TrafficLight, metres: float = 0.0) -> carla.Transform:
    """Return the pose of a vehicle at a light, or so far before it."""
    place = light.get_stop_waypoints()[0]
    place = place.previous(metres)[0] if metres else place
    place.transform.location.z += 0.1
    return place.transform


def test_a_light_is_found_by_landmark_junction_and_lane(lit: Session):
    world, lights = lit.world, lights_of(lit)
    landmarks = {landmark.id: landmark for landmark in world.get_map().get_all_landmarks()}
    assert len(lights) >= 10
    for light in lights:
        landmark = landmarks[light.get_opendrive_id()]
        assert landmark.transform.location.distance(light.get_location()) < 1e-2
        assert world.get_traffic_light(landmark).id == light.id
        assert world.get_traffic_light_from_opendrive_id(landmark.id).id == light.id
        stops, affected = light.get_stop_waypoints(), light.get_affected_lane_waypoints()
        assert len(stops) >= 1
        assert len(affected) >= len(stops)
        assert not any(stop.is_junction for stop in stops)
        assert light.id in [found.id for found in world.get_traffic_lights_from_waypoint(stops[0], 30.0)]
        junction = affected[0].get_junction()
        group = {other.id for other in light.get_group_traffic_lights()}
        assert {other.id for other in world.get_traffic_lights_in_junction(junction.id)} == group


def test_signs_are_actors_with_the_number_in_their_names(lit: Session):
    signs = {actor.type_id: actor for actor in lit.world.get_actors().filter("traffic.*")}
    assert {"traffic.stop", "traffic.yield", "traffic.speed_limit.60"} < set(signs)
    stops = [one for one in lit.world.get_map().get_all_landmarks() if one.type == "206"]
    assert signs["traffic.stop"].id in [lit.world.get_traffic_sign(landmark).id for landmark in stops]
    assert not signs["traffic.stop"].destroy()


def test_light_boxes_are_heads_above_the_road(lit: Session):
    for light in lights_of(lit):
        (box,) = light.get_light_boxes()
        assert 2.0 < box.location.z - box.extent.z < 3.0
        assert box.location.distance_2d(light.get_location()) < 0.5
    heads = lit.world.get_level_bbs(carla.CityObjectLabel.TrafficLight)
    assert len(heads) == len(lights_of(lit))
    signs = [actor for actor in lit.world.get_actors().filter("traffic.*") if "light" not in actor.type_id]
    assert len(lit.world.get_environment_objects(carla.CityObjectLabel.TrafficSigns)) == len(signs)


def test_the_cycle_is_carlas_and_is_frozen_reset_and_set(lit: Session):
    light = lights_of(lit)[0].get_group_traffic_lights()[0]
    others = light.get_group_traffic_lights()[1:]
    assert (light.get_green_time(), light.get_yellow_time(), light.get_red_time()) == (10.0, 3.0, 2.0)
    lit.world.reset_all_traffic_lights()
    seen = []
    for _ in range(int(15.3 / DELTA_S)):
        lit.world.tick()
        seen.append(light.get_state())
        assert sum(other.get_state() != RED for other in (light, *others)) <= 1
    lengths = [seen.count(state) * DELTA_S for state in (GREEN, YELLOW)]
    assert lengths == pytest.approx([10.0, 3.0], abs=2 * DELTA_S)
    light.set_green_time(1.0)
    light.reset_group()
    lit.world.tick()
    assert light.get_state() == GREEN
    assert light.get_elapsed_time() == pytest.approx(DELTA_S)
    assert light.get_green_time() == 1.0
    lit.ticks(int(1.1 / DELTA_S))
    assert light.get_state() == YELLOW
    light.freeze(True)
    light.set_state(OFF)
    lit.ticks(100)
    assert light.is_frozen()
    assert light.get_state() == OFF
    light.set_green_time(10.0)


def test_a_vehicle_is_at_the_light_before_it_and_at_no_other(lit: Session):
    light = lights_of(lit)[0].get_group_traffic_lights()[0]
    lit.world.freeze_all_traffic_lights(True)
    light.set_state(YELLOW)
    car = lit.car()
    car.set_simulate_physics(False)
    car.set_transform(before(lit, light, 10.0))
    lit.world.tick()
    assert not car.is_at_traffic_light()
    assert car.get_traffic_light_state() == GREEN
    car.set_transform(before(lit, light))
    lit.world.tick()
    assert car.is_at_traffic_light()
    assert car.get_traffic_light().id == light.id
    assert car.get_traffic_light_state() == YELLOW
    light.set_state(RED)
    lit.world.tick()
    assert car.get_traffic_light_state() == RED
    turned = before(lit, light)
    turned.rotation.yaw += 180.0
    car.set_transform(turned)
    lit.world.tick()
    assert not car.is_at_traffic_light()


def test_a_camera_before_a_light_sees_which_lamp_is_lit(lit: Session):
    light = lights_of(lit)[0]
    lit.world.freeze_all_traffic_lights(True)
    (box,) = light.get_light_boxes()
    facing = light.get_transform().rotation.yaw - 90.0
    ahead = carla.Rotation(yaw=facing).get_forward_vector()
    camera = lit.camera(None, 256, 256, fov="60")
    distance = 6.0
    camera.sensor.set_transform(
        carla.Transform(box.location - carla.Location(ahead * distance), carla.Rotation(yaw=facing))
    )
    focal = 128.0 / np.tan(np.radians(30.0))
    lamp = np.pi * (0.15 * focal / distance) ** 2
    lit.world.tick()
    camera.next()
    rows = []
    for state, channels in ((RED, (2,)), (YELLOW, (1, 2)), (GREEN, (1,))):
        light.set_state(state)
        lit.world.tick()
        seen = camera.next()
        image = np.frombuffer(seen.raw_data, np.uint8).reshape(256, 256, 4)[..., :3].astype(int)
        bright = np.all([image[..., c] > 180 for c in channels], axis=0)
        dark = np.all([image[..., c] < 140 for c in range(3) if c not in channels], axis=0)
        found = np.argwhere((bright & dark)[64:192, 100:156])
        assert 0.7 * lamp < len(found) < 1.4 * lamp
        rows.append(found[:, 0].mean())
    assert rows == sorted(rows)


def test_a_reload_and_another_start_show_the_same_lights(lit: Session, start_server: StartServer):
    def course(world: carla.World) -> list[tuple[str, str, float]]:
        world.reset_all_traffic_lights()
        lights = sorted(world.get_actors().filter("traffic.traffic_light"), key=lambda light: light.id)
        seen = []
        for _ in range(250):
            world.tick()
            seen += [(one.get_opendrive_id(), str(one.get_state()), one.get_elapsed_time()) for one in lights]
        return seen

    first = course(lit.world)
    assert course(lit.client.reload_world(False)) == first
    assert course(session_of("127.0.0.1", start_server().port).world) == first


def test_a_traffic_manager_stops_at_red_and_goes_at_green(start_server: StartServer):
    outcome = driven(start_server, 8, 900)
    assert outcome["left_on_green"] >= 3
    assert outcome["ran_red"] == 0
