"""The real client against a real server: radar and obstacle detector."""

from __future__ import annotations

import math
import queue
from typing import Any

import carla
import pytest

from tests.wire.conftest import WAIT_S, Session

ONE_SERVER = True


def radar(session: Session, where: carla.Transform, parent: Any = None, **attributes: str) -> queue.Queue[Any]:
    return listening(session, "sensor.other.radar", where, parent, **attributes)


def listening(session: Session, name: str, where: carla.Transform, parent: Any, **attributes: str) -> queue.Queue[Any]:
    sensor = session.world.spawn_actor(session.blueprint(name, **attributes), where, parent)
    session.sensors.append(sensor)
    found: queue.Queue[Any] = queue.Queue()
    sensor.listen(found.put)
    return found


def tick(session: Session, found: queue.Queue[Any]) -> Any:
    frame = session.world.tick()
    while (measured := found.get(timeout=WAIT_S)).frame < frame:
        pass
    return measured


def road(session: Session, high_m: float = 0.6) -> carla.Transform:
    """Return a level place above the road at the first spawn point."""
    where = session.world.get_map().get_waypoint(session.world.get_map().get_spawn_points()[0].location).transform
    where.location.z += high_m
    return where


NARROW = {"horizontal_fov": "2", "vertical_fov": "1", "points_per_second": "4000"}


def test_a_car_that_comes_nearer_has_a_velocity_below_zero(session):
    car = session.car(ahead_m=30.0)
    found = radar(session, road(session), **NARROW)
    session.ticks(20)  # it is put down from above
    ahead = car.get_transform().get_forward_vector()
    for speed in (-8.0, 0.0, 8.0):
        car.set_target_velocity(ahead * speed)
        measured = tick(session, found)
        speed_now = car.get_velocity().dot(ahead)
        assert len(measured) == 200
        for detection in measured:
            assert detection.velocity == pytest.approx(speed_now, abs=0.05)
        assert abs(speed_now - speed) < 1.5


def test_a_radar_that_drives_sees_what_stands_come_nearer(session):
    own, other = session.car(), session.car(ahead_m=30.0)
    found = radar(session, carla.Transform(carla.Location(x=2.6, z=0.7)), own, **NARROW)
    session.ticks(20)
    own.set_target_velocity(own.get_transform().get_forward_vector() * 10.0)
    session.world.tick()
    before = own.get_location()
    measured = tick(session, found)
    gone = own.get_location().distance(before)
    assert gone > 0.3
    assert len(measured) > 150
    nearest = min(detection.depth for detection in measured)
    expected = other.get_location().distance(own.get_location()) - 2.6 - other.bounding_box.extent.x
    assert nearest == pytest.approx(expected, abs=0.25)
    assert all(detection.velocity == pytest.approx(-gone / 0.05, rel=0.01) for detection in measured)


def test_detections_say_in_which_direction_they_are(session):
    where = road(session, 5.0)
    where.rotation.pitch = -30.0
    measured = tick(session, radar(session, where, horizontal_fov="40", vertical_fov="20", points_per_second="40000"))
    assert len(measured) > 1000
    for detection in list(measured)[::50]:
        assert abs(detection.azimuth) <= math.radians(20.0) + 1e-4
        assert abs(detection.altitude) <= math.radians(10.0) + 1e-4
        local = carla.Location(
            detection.depth * math.cos(detection.altitude) * math.cos(detection.azimuth),
            detection.depth * math.cos(detection.altitude) * math.sin(detection.azimuth),
            detection.depth * math.sin(detection.altitude),
        )
        assert where.transform(local).z == pytest.approx(where.location.z - 5.0, abs=0.01) or detection.depth < 9.0
    assert max(detection.azimuth for detection in measured) > math.radians(15.0)


def test_the_same_seed_gives_the_same_detections(session):
    def bytes_of(seed: str) -> bytes:
        return bytes(tick(session, radar(session, road(session, 3.0), noise_seed=seed, vertical_fov="90")).raw_data)

    first = bytes_of("3")
    assert first
    assert bytes_of("3") == first
    assert bytes_of("4") != first


def test_an_obstacle_ahead_is_named_with_its_distance(session):
    own, other = session.car(), session.car(ahead_m=14.0)
    session.ticks(20)
    mount = carla.Transform(carla.Location(x=1.0, z=1.0))
    found = listening(session, "sensor.other.obstacle", mount, own, distance="20", hit_radius="0.2")
    event = tick(session, found)
    assert (event.actor.id, event.other_actor.id) == (session.sensors[-1].id, other.id)
    # Up to the ball's front, and never the car that it hangs on.
    gap = other.get_location().distance(own.get_location()) - 1.0 - other.bounding_box.extent.x - 0.2
    assert event.distance == pytest.approx(gap, abs=0.3)
    other.destroy()
    session.ticks(2)
    assert found.empty()


def test_only_dynamics_passes_what_stands(session):
    where = road(session, 3.0)
    where.rotation.pitch = -89.0
    still = listening(session, "sensor.other.obstacle", where, None, distance="10", hit_radius="0.5")
    moving = listening(session, "sensor.other.obstacle", where, None, distance="10", only_dynamics="true")
    event = tick(session, still)
    assert (event.other_actor.id, event.other_actor.type_id) == (0, "static.road")
    assert event.distance == pytest.approx(2.5, abs=0.01)
    assert moving.empty()
    car = session.car()
    assert tick(session, moving).other_actor.id == car.id
