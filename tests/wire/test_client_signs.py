"""Stop and yield signs through the real client: who is told to wait, and whom the Traffic Manager holds."""

from __future__ import annotations

import time

import carla
import pytest

from tests.conftest import port_pair
from tests.wire.conftest import DELTA_S, Session

ONE_SERVER = True

RED, GREEN = carla.TrafficLightState.Red, carla.TrafficLightState.Green


def stop_of(session: Session, kind: str) -> carla.Waypoint:
    """Return where the traffic of the map's first sign of a kind stops."""
    sign = min(session.world.get_actors().filter(f"traffic.{kind}"), key=lambda actor: actor.id)
    volume = sign.trigger_volume.location
    sign.get_transform().transform(volume)
    return session.world.get_map().get_waypoint(volume)


def car_at(session: Session, where: carla.Waypoint) -> carla.Vehicle:
    place = where.transform
    place.location.z += 0.3
    car = session.world.spawn_actor(session.blueprint("vehicle.tesla.model3"), place)
    session.actors.append(car)
    return car


def crossing(session: Session, stop: carla.Waypoint) -> carla.Waypoint:
    """Return a place in the junction on a lane that crosses those from the stop."""
    junction = stop.next(6.0)[0].get_junction()
    for begin, end in junction.get_waypoints(carla.LaneType.Driving):
        straight = abs((begin.transform.rotation.yaw - end.transform.rotation.yaw + 180.0) % 360.0 - 180.0) < 5.0
        if straight and begin.previous(2.0)[0].road_id != stop.road_id:
            across = abs((begin.transform.rotation.yaw - stop.transform.rotation.yaw) % 180.0 - 90.0) < 30.0
            if across:
                return begin.next(0.5 * begin.transform.location.distance(end.transform.location))[0]
    raise AssertionError("no lane crosses")


def states(session: Session, car: carla.Vehicle, ticks: int) -> list[carla.TrafficLightState]:
    found = []
    for _ in range(ticks):
        session.world.tick()
        found.append(car.get_traffic_light_state())
    return found


def test_at_a_stop_sign_a_car_waits_two_seconds(session: Session):
    car = car_at(session, stop_of(session, "stop"))
    seen = states(session, car, 60)
    assert not car.is_at_traffic_light()
    waits = round(2.0 / DELTA_S)
    assert seen[: waits - 1] == [RED] * (waits - 1)
    assert seen[waits + 1 :] == [GREEN] * (60 - waits - 1)


@pytest.mark.parametrize("kind", ["stop", "yield"])
def test_at_a_sign_a_car_waits_for_crossing_traffic(session: Session, kind: str):
    stop = stop_of(session, kind)
    other = car_at(session, crossing(session, stop))
    car = car_at(session, stop)
    assert states(session, car, 60) == [RED] * 60
    other.destroy()
    assert GREEN in states(session, car, 30)


def test_at_a_yield_sign_of_an_empty_crossing_no_car_waits(session: Session):
    car = car_at(session, stop_of(session, "yield"))
    assert states(session, car, 5) == [GREEN] * 5


@pytest.mark.parametrize("height_m", [8.0, -50.0])
def test_no_car_waits_for_one_on_a_bridge_or_below_ground(session: Session, height_m: float):
    stop = stop_of(session, "yield")
    other = car_at(session, crossing(session, stop))
    other.set_simulate_physics(False)
    session.world.tick()
    other.set_location(other.get_location() + carla.Location(z=height_m))
    car = car_at(session, stop)
    assert states(session, car, 40) == [GREEN] * 40


def test_a_traffic_manager_stops_at_a_stop_sign_and_goes_on(session: Session):
    stop = stop_of(session, "stop")
    car = car_at(session, stop.previous(25.0)[0])
    manager = session.client.get_trafficmanager(port_pair())
    manager.set_synchronous_mode(True)
    session.world.tick()  # a Traffic Manager's first round forgets cars that the snapshot before it lacks
    car.set_autopilot(True, manager.get_port())
    slowest_mps, left_m = 100.0, 0.0
    for _ in range(400):
        session.world.tick()
        time.sleep(0.0005)  # back to back, the client's Traffic Manager can wait for itself for ever
        left_m = car.get_location().distance(stop.transform.location)
        if left_m < 5.0:
            slowest_mps = min(slowest_mps, car.get_velocity().length())
        if slowest_mps < 100.0 and left_m > 15.0:
            break
    manager.shut_down()
    assert slowest_mps < 0.1
    assert left_m > 15.0
