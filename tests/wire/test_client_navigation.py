"""The real client against a real server: GNSS and IMU."""

from __future__ import annotations

import math
import queue
import statistics
import time

import carla
import pytest

WAIT_S = 10.0


def listening(session, name, parent, place=None, **attributes):
    """Spawn a sensor and return the queue of what it sends."""
    sensor = session.world.spawn_actor(session.blueprint(name, **attributes), place or carla.Transform(), parent)
    session.sensors.append(sensor)
    events: queue.Queue[carla.SensorData] = queue.Queue()
    sensor.listen(events.put)
    return events


def settled(session):
    car = session.car()
    session.ticks(20)  # it is let down from above the road
    return car


@pytest.mark.any_simulator
def test_gnss_agrees_with_the_map(session):
    car = settled(session)
    fixes = listening(session, "sensor.other.gnss", car, carla.Transform(carla.Location(x=1.0, z=2.0)))
    car.apply_control(carla.VehicleControl(throttle=0.6))
    town = session.world.get_map()
    for _ in range(30):
        frame = session.world.tick()
        fix = fixes.get(timeout=WAIT_S)
        assert fix.frame == frame
        expected = town.transform_to_geolocation(fix.transform.location)
        assert fix.latitude == pytest.approx(expected.latitude, abs=1e-9)
        assert fix.longitude == pytest.approx(expected.longitude, abs=1e-9)
        assert fix.altitude == pytest.approx(expected.altitude, abs=1e-3)
    assert car.get_velocity().length() > 3.0


def test_gnss_noise_follows_its_attributes_and_seed(session):
    car = settled(session)
    noise = {"noise_alt_stddev": "2.0", "noise_alt_bias": "100.0", "noise_lat_stddev": "0.001"}
    same = [listening(session, "sensor.other.gnss", car, noise_seed="7", **noise) for _ in range(2)]
    other = listening(session, "sensor.other.gnss", car, noise_seed="8", **noise)
    heard: list[list[tuple[float, float]]] = [[], [], []]
    for _ in range(100):
        session.world.tick()
        for fixes, into in zip((*same, other), heard, strict=True):
            fix = fixes.get(timeout=WAIT_S)
            into.append((fix.altitude, fix.latitude))
    assert heard[0] == heard[1] != heard[2]
    altitudes = [altitude for altitude, _ in heard[0]]
    assert statistics.mean(altitudes) == pytest.approx(car.get_location().z + 100.0, abs=1.0)
    assert statistics.stdev(altitudes) == pytest.approx(2.0, rel=0.3)
    assert statistics.stdev(latitude for _, latitude in heard[0]) == pytest.approx(0.001, rel=0.3)


@pytest.mark.any_simulator
def test_an_imu_feels_gravity_acceleration_and_turning(session):
    car = settled(session)
    readings = listening(session, "sensor.other.imu", car)
    for _ in range(5):
        session.world.tick()
        resting = readings.get(timeout=WAIT_S)
    assert resting.accelerometer.z == pytest.approx(9.81, abs=0.1)
    assert abs(resting.accelerometer.x) < 0.2
    assert resting.gyroscope.length() < 0.02
    yaw = car.get_transform().rotation.yaw
    assert math.degrees(resting.compass) == pytest.approx((yaw + 90.0) % 360.0, abs=0.1)
    car.apply_control(carla.VehicleControl(throttle=1.0))
    pushed = []
    for _ in range(40):
        session.world.tick()
        pushed.append(readings.get(timeout=WAIT_S).accelerometer.x)
    gained = car.get_velocity().length()
    assert sum(pushed) * 0.05 == pytest.approx(gained, rel=0.1)
    car.apply_control(carla.VehicleControl(throttle=0.3, steer=0.3))
    for _ in range(20):
        session.world.tick()
        turning = readings.get(timeout=WAIT_S)
    assert turning.gyroscope.z == pytest.approx(math.radians(car.get_angular_velocity().z), abs=0.05)
    assert turning.gyroscope.z > 0.1
    assert turning.accelerometer.y > 0.5  # to the right, where it turns


def test_imu_noise_and_interval_are_as_asked(session):
    car = settled(session)
    readings = listening(
        session, "sensor.other.imu", car, sensor_tick="0.1", noise_gyro_bias_y="0.5", noise_accel_stddev_x="0.3"
    )
    session.ticks(120)
    time.sleep(0.3)
    heard = [readings.get_nowait() for _ in range(readings.qsize())]
    assert len(heard) == 60
    assert heard[-1].gyroscope.y == pytest.approx(0.5, abs=0.01)
    assert statistics.stdev(reading.accelerometer.x for reading in heard) == pytest.approx(0.3, rel=0.4)
