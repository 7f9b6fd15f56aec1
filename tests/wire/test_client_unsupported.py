"""The real client against a real server: what is gone, what has no effect, and how a caller gets to know."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import carla
import pytest

from carla_lite import coverage
from carla_lite.coverage import Kind
from carla_lite.support import Status
from tests.conftest import port_pair


def test_the_box_of_a_car_that_another_client_destroyed_is_empty(start_server, connect):
    server = start_server()
    one, two = connect(server), connect(server, synchronous=False)
    car = one.car()
    sensor = one.sensor("sensor.other.lane_invasion", car, lambda _event: None)
    one.world.tick()
    assert car.bounding_box.extent.x > 1.0
    two.client.apply_batch_sync([carla.command.DestroyActor(car.id)], False)
    one.world.tick()
    assert car.bounding_box.extent == carla.Vector3D()
    sensor.stop()


@pytest.mark.any_simulator
def test_a_traffic_manager_outlives_destroyed_cars(session):
    host_cars = [session.car(place) for place in range(6)]
    manager = session.client.get_trafficmanager(port_pair())
    manager.set_synchronous_mode(True)
    for car in host_cars:
        car.set_autopilot(True, manager.get_port())
    for number in range(30):
        session.world.tick()
        if number % 5 == 4:
            # Not by destroy(), which would tell the manager.
            session.client.apply_batch([carla.command.DestroyActor(host_cars[number // 5].id)])
    assert session.world.tick() > 0
    manager.shut_down()


def test_forces_on_a_sensor_have_no_effect_and_are_no_error(session):
    car = session.car()
    sensor = session.sensor("sensor.other.collision", car, lambda _event: None)
    push, spin = carla.command.ApplyImpulse, carla.command.ApplyTargetAngularVelocity
    force = carla.Vector3D(1000.0, 0.0, 0.0)
    answers = session.client.apply_batch_sync([push(sensor, force), spin(sensor, force)], True)
    assert [answer.error for answer in answers] == ["", ""]


def test_a_torque_turns_a_car_and_without_gravity_it_floats(session):
    car = session.car()
    session.ticks(20)
    place = car.get_location()
    car.set_enable_gravity(False)
    car.set_location(place + carla.Location(z=3.0))
    session.ticks(20)
    assert car.get_location().z == pytest.approx(place.z + 3.0, abs=1e-3)
    session.client.apply_batch_sync([carla.command.ApplyTorque(car, carla.Vector3D(0.0, 0.0, 1e10))], True)
    session.world.tick()
    assert car.get_angular_velocity().z > 5.0


def test_calls_without_effect_are_logged_once_and_counted(start_faulty, connect):
    faulty = start_faulty()
    session = connect(faulty.server)
    car = session.car()
    for _ in range(3):
        session.world.debug.draw_hud_point(carla.Location())
        car.open_door(carla.VehicleDoor.All)  # a Model 3's don't open
        car.show_debug_telemetry(True)
    session.world.tick()
    counts = dict(entry.split(":") for entry in faulty.status()["unsupported"].split(";"))
    assert counts == {
        "draw_hud_shape": "3",
        "open_vehicle_door": "3",
        "show_vehicle_debug_telemetry": "3",
    }
    time.sleep(0.1)
    log = faulty.server.output
    for name in counts:
        assert log.count(f"carla-lite: {name} has no effect") == 1


def test_what_is_supported_is_not_counted(start_faulty, connect):
    faulty = start_faulty()
    session = connect(faulty.server)
    car = session.car()
    session.world.set_weather(carla.WeatherParameters.HardRainNoon)
    session.world.get_lightmanager().set_day_night_cycle(True)
    car.apply_control(carla.VehicleControl(throttle=0.5))
    session.world.tick()
    assert faulty.status()["unsupported"] == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sensor.other.rss", "ad-rss"),
        ("sensor.other.v2x", "radio"),
        ("sensor.other.v2x_custom", "radio"),
    ],
)
def test_what_is_only_listed_is_refused_in_words(session, name, why):
    blueprint = session.blueprint(name, role_name="front")
    with pytest.raises(RuntimeError, match=f"carla-lite has no {name}: .*{why}"):
        session.world.spawn_actor(blueprint, carla.Transform())


CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    "enable_carsim": lambda _world, car, _camera: car.enable_carsim("vehicle.sim"),
    "enable_chrono_physics": lambda _world, car, _camera: car.enable_chrono_physics(10, 0.01, "", "", "", ""),
    "enable_gbuffers": lambda _world, _car, camera: camera.enable_gbuffers(True),
    "enable_sensor_for_ros": lambda _world, _car, camera: camera.enable_for_ros(),
    "set_annotations_traverse_translucency": lambda world, _car, _camera: world.set_annotations_traverse_translucency(
        True
    ),
    "set_ignored_vehicles": lambda _world, car, camera: camera.set_ignored_vehicles([car.id]),
    "show_vehicle_debug_telemetry": lambda _world, car, _camera: car.show_debug_telemetry(True),
    "use_carsim_road": lambda _world, car, _camera: car.use_carsim_road(True),
}
"""Every call that is refused or has no effect, by the client."""
ELSEWHERE = {"get_gbuffer_token", "send", "console_command"}
"""The first is in test_client_surfaces; V2X sensors send the second, and can't be spawned; Python lacks the third."""


def test_what_is_refused_or_ignored_says_what_the_coverage_says(start_faulty, connect):
    faulty = start_faulty()
    session = connect(faulty.server)
    car = session.car()
    camera = session.world.spawn_actor(session.blueprint("sensor.camera.rgb"), carla.Transform(), car)
    rows = {row.name: row for row in coverage.rows() if row.kind is Kind.CALL}
    silent = {name for name, row in rows.items() if row.status in (Status.REFUSED, Status.WITHOUT_EFFECT)}
    assert set(CALLS) == silent - ELSEWHERE
    raised = {}
    for name, call in random.sample(sorted(CALLS.items()), len(CALLS)):
        try:
            call(session.world, car, camera)
        except RuntimeError as error:
            raised[name] = str(error)
    assert not camera.is_enabled_for_ros()
    camera.disable_for_ros()
    session.world.tick()
    assert raised == {name: rows[name].how for name in ("enable_gbuffers", "set_ignored_vehicles")}
    counts = dict(entry.split(":") for entry in faulty.status()["unsupported"].split(";"))
    assert counts == dict.fromkeys(CALLS, "1")
    time.sleep(0.1)
    log = faulty.server.output
    for name in CALLS:
        assert log.count(f"carla-lite: {name} has no effect: {rows[name].how}\n") == 1
