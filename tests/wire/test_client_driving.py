"""The real client against a real server: cars, their controls, attachments, batches, collisions."""

from __future__ import annotations

import hashlib
import math
import queue
import time

import carla
import pytest

from tests.crowd import PATIENCE_S
from tests.wire.conftest import DELTA_S, spawned

ONE_SERVER = True


def speed(actor):
    return actor.get_velocity().length()


@pytest.mark.any_simulator
def test_a_car_drives_when_told_and_stops_when_braked(session):
    car = session.car()
    session.world.tick()
    start = car.get_transform()
    car.apply_control(carla.VehicleControl(throttle=0.6))
    session.ticks(60)
    driven = car.get_location() - start.location
    assert speed(car) > 5.0
    assert driven.dot(start.get_forward_vector()) > 5.0
    assert car.get_control().throttle == pytest.approx(0.6)
    assert car.get_acceleration().length() > 0.1
    car.apply_control(carla.VehicleControl(brake=1.0))
    session.ticks(80)
    assert speed(car) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.any_simulator
def test_acceleration_is_the_change_of_velocity_over_the_tick(session):
    car = session.car()
    place = session.world.get_map().get_spawn_points()[7]
    person = session.world.spawn_actor(session.blueprint("walker.pedestrian.0001"), place)
    session.actors.append(person)
    session.ticks(20)
    ahead = car.get_transform().get_forward_vector()

    def step(actor):
        before = actor.get_velocity()
        session.world.tick()
        change = (actor.get_velocity() - before) / DELTA_S
        assert (actor.get_acceleration() - change).length() < 0.01
        return change.length()

    car.apply_control(carla.VehicleControl(throttle=1.0))
    assert step(car) > 1.0
    car.add_impulse(carla.Vector3D(z=1e4))
    assert step(car) > 50.0
    assert step(car) > 9.0
    car.set_target_velocity(ahead * 20.0)
    assert step(car) > 200.0
    person.apply_control(carla.WalkerControl(ahead, 2.0, True))
    assert step(person) > 50.0
    assert step(person) > 9.0


@pytest.mark.any_simulator
def test_positive_steering_turns_right(session):
    car = session.car()
    session.world.tick()
    yaw = car.get_transform().rotation.yaw
    car.apply_control(carla.VehicleControl(throttle=0.4, steer=0.3))
    session.ticks(30)
    turned = (car.get_transform().rotation.yaw - yaw + 180) % 360 - 180
    assert turned > 3.0
    assert car.get_angular_velocity().z > 0.0


def listening(session, name, parent, **attributes):
    """Spawn a sensor on a car and return the queue of what it sends."""
    events: queue.SimpleQueue[carla.SensorData] = queue.SimpleQueue()
    sensor = session.world.spawn_actor(session.blueprint(name, **attributes), carla.Transform(), parent)
    session.sensors.append(sensor)
    sensor.listen(events.put)
    return events


def hexed(*vectors):
    """Return the components of vectors, or numbers, so that nothing is rounded away."""
    parts = [(part.x, part.y, part.z) if hasattr(part, "x") else (part,) for part in vectors]
    return tuple(value.hex() for part in parts for value in part)


def state_of(actor):
    """Return all that the world message says of an actor."""
    at = actor.get_transform()
    turned = at.rotation.pitch, at.rotation.yaw, at.rotation.roll
    return hexed(at.location, *turned, actor.get_velocity(), actor.get_angular_velocity(), actor.get_acceleration())


def drive(session):
    """Return by stream everything that a fixed drive of three cars shows, two of which collide."""
    car, other = session.car(), session.car(ahead_m=15.0, name="vehicle.audi.tt")
    third = session.car(place=20, name="vehicle.kawasaki.ninja")
    camera = session.camera(car)
    noise = {"noise_seed": "5", "noise_accel_stddev_x": "0.1", "noise_gyro_stddev_z": "0.1"}
    imu = listening(session, "sensor.other.imu", car, **noise)
    gnss = listening(session, "sensor.other.gnss", car, noise_seed="5", noise_lat_stddev="0.001")
    bumps = listening(session, "sensor.other.collision", car)
    streams: dict[str, list[object]] = {name: [] for name in ("world", "camera", "imu", "gnss", "collision")}
    first = session.world.get_snapshot().frame  # a server's own frames go on until a client takes over
    for number in range(120):
        steer = 0.1 * math.sin(number / 9.0)
        car.apply_control(carla.VehicleControl(throttle=0.9, steer=steer, brake=float(number % 40 > 35)))
        third.apply_control(carla.VehicleControl(throttle=0.5, steer=-steer))
        session.world.tick()
        streams["world"].append([state_of(actor) for actor in (car, other, third)])
        streams["camera"].append(hashlib.sha256(bytes(camera.next().raw_data)).hexdigest())
        felt, fix = imu.get(timeout=PATIENCE_S), gnss.get(timeout=PATIENCE_S)
        streams["imu"].append(hexed(felt.accelerometer, felt.gyroscope, felt.compass))
        streams["gnss"].append(hexed(fix.latitude, fix.longitude, fix.altitude))
    time.sleep(0.3)
    while not bumps.empty():
        bump = bumps.get()
        streams["collision"].append((bump.frame - first, bump.other_actor.type_id, hexed(bump.normal_impulse)))
    return streams


def test_two_fresh_servers_give_the_same_bytes(start_server, connect):
    one, two = drive(connect(start_server())), drive(connect(start_server()))
    for name, messages in one.items():
        assert messages == two[name], name
    assert len(set(one["camera"])) > 100
    assert {other for _, other, _ in one["collision"]} == {"vehicle.audi.tt"}


@pytest.mark.any_simulator
def test_an_occupied_place_is_refused_in_carlas_words(session):
    session.car()
    with pytest.raises(RuntimeError, match="Spawn failed because of collision at spawn position"):
        session.car()
    where = session.world.get_map().get_spawn_points()[0]
    assert session.world.try_spawn_actor(session.blueprint("vehicle.audi.tt"), where) is None
    assert len(session.world.get_actors().filter("vehicle.*")) in (0, 1)
    session.world.tick()
    assert len(session.world.get_actors().filter("vehicle.*")) == 1


def test_a_collision_names_frame_other_and_impulse(session):
    car, other = session.car(), session.car(ahead_m=15.0, name="vehicle.audi.tt")
    events = []

    def note(event):
        events.append((event.frame, event.other_actor.id, event.normal_impulse.length()))

    session.sensor("sensor.other.collision", car, note)
    session.world.tick()
    forward, resting = car.get_transform().get_forward_vector(), other.get_location()
    car.apply_control(carla.VehicleControl(throttle=1.0))
    frames = [session.world.tick() for _ in range(80)]
    time.sleep(0.3)
    assert events
    frame, hit, impulse = events[0]
    assert frame in frames
    assert hit == other.id
    assert impulse > 500.0
    assert (other.get_location() - resting).dot(forward) > 0.1


def test_the_clients_lane_invasion_sensor_works(session):
    car = session.car()
    events: list[carla.LaneInvasionEvent] = []
    session.sensor("sensor.other.lane_invasion", car, events.append)
    session.world.tick()
    car.apply_control(carla.VehicleControl(throttle=0.6, steer=0.15))
    session.ticks(80)
    time.sleep(0.2)
    assert events
    assert events[0].crossed_lane_markings


@pytest.mark.any_simulator
def test_a_destroyed_cars_sensors_stay_where_they_are(session):
    car = session.car()
    camera = session.camera(car)
    spawn, gnss = carla.command.SpawnActor, session.blueprint("sensor.other.gnss")
    (other,) = session.client.apply_batch_sync([spawn(gnss, carla.Transform(carla.Location(z=2.0)), car)], True)
    camera.next()
    places = [camera.sensor.get_transform(), session.world.get_actor(other.actor_id).get_transform()]
    assert car.destroy()
    image = camera.at(session.world.tick())
    assert image.transform.location.distance(places[0].location) < 1e-3
    assert image.transform.rotation.pitch == pytest.approx(places[0].rotation.pitch, abs=0.01)
    actors = session.world.get_actors()
    assert sorted(spawned(actors)) == ["sensor.camera.rgb", "sensor.other.gnss", "spectator"]
    left = actors.find(other.actor_id)
    assert left.get_location().distance(places[1].location) < 1e-3
    moved = carla.Transform(carla.Location(1.0, 2.0, 3.0))
    left.set_transform(moved)
    session.world.tick()
    assert left.get_location().distance(moved.location) < 1e-3
    assert left.destroy()


@pytest.mark.any_simulator
def test_placing_a_car_moves_it_and_an_attached_sensor_follows(session):
    car = session.car()
    camera = session.camera(car)
    session.world.tick()
    camera.next()
    where = session.world.get_map().get_spawn_points()[5]
    car.set_transform(where)
    session.world.tick()
    assert car.get_location().distance(where.location) < 1.0
    ahead = car.get_transform().transform(carla.Location(x=1.2, z=1.8))
    image = camera.next()
    assert image.transform.location.distance(ahead) < 1e-3
    assert image.transform.rotation.pitch == pytest.approx(-12.0, abs=0.1)


@pytest.mark.any_simulator
def test_a_frozen_car_stays(session):
    car = session.car()
    session.world.tick()
    car.set_simulate_physics(False)
    car.apply_control(carla.VehicleControl(throttle=1.0))
    session.world.tick()
    place = car.get_transform()
    session.ticks(20)
    assert car.get_transform() == place


@pytest.mark.any_simulator
def test_a_target_velocity_is_in_the_worlds_frame(session):
    car = session.car()
    session.world.tick()
    wanted = car.get_transform().get_forward_vector() * 6.0
    car.set_target_velocity(wanted)
    session.world.tick()
    assert (car.get_velocity() - wanted).length() < 0.5


@pytest.mark.any_simulator
def test_a_heavier_car_is_slower(session):
    car = session.car()
    figures = car.get_physics_control()
    assert figures.mass == pytest.approx(1845.0)
    assert len(figures.wheels) == 4
    assert figures.wheels[0].max_steer_angle > 30.0
    assert figures.wheels[2].max_steer_angle == 0.0

    def run():
        car.set_transform(session.world.get_map().get_spawn_points()[0])
        car.set_target_velocity(carla.Vector3D())
        car.apply_control(carla.VehicleControl(throttle=0.5))
        session.ticks(30)
        return speed(car)

    light = run()
    figures.mass *= 2.0
    car.apply_physics_control(figures)
    assert car.get_physics_control().mass == pytest.approx(3690.0)
    assert run() < 0.7 * light


def test_an_ackermann_target_speed_is_reached_and_held(session):
    car = session.car()
    session.world.tick()
    car.apply_ackermann_control(carla.VehicleAckermannControl(speed=5.0))
    session.ticks(160)
    assert speed(car) == pytest.approx(5.0, abs=0.5)


@pytest.mark.any_simulator
def test_a_batch_tells_of_each_actor_that_it_spawned(session):
    """Errors of ``then`` are dropped, as in CARLA, and an error of carla-lite's own is its command's only."""
    places, spawn = session.world.get_map().get_spawn_points(), carla.command.SpawnActor
    car = spawn(session.blueprint("vehicle.tesla.model3"), places[1])
    gnss = session.blueprint("sensor.other.gnss")
    odd = session.blueprint("sensor.other.imu")
    odd.set_attribute("noise_seed", "inf")
    walk = carla.command.ApplyWalkerControl(carla.command.FutureActor, carla.WalkerControl())
    batch = [
        car.then(walk).then(spawn(gnss, carla.Transform(), carla.command.FutureActor)),
        spawn(gnss, carla.Transform(), 0),
        spawn(odd, carla.Transform()),
    ]
    answers = session.client.apply_batch_sync(batch, True)
    assert [bool(answer.actor_id) for answer in answers] == [True, False, False]
    assert [answer.error == "" for answer in answers] == [True, False, False]
    assert "noise_seed is inf" in answers[2].error
    assert [actor.id for actor in session.world.get_actors().filter("*tesla*")] == [answers[0].actor_id]
    assert not list(session.world.get_actors().filter("sensor.*"))
    session.client.apply_batch_sync([carla.command.DestroyActor(answers[0].actor_id)], True)
    assert not list(session.world.get_actors().filter("*tesla*"))


def test_a_batch_answers_each_command_and_then_gives_the_new_id(session):
    spawn, future = carla.command.SpawnActor, carla.command.FutureActor
    points = session.world.get_map().get_spawn_points()
    blueprint = session.blueprint("vehicle.audi.tt")
    batch = [spawn(blueprint, point).then(carla.command.SetSimulatePhysics(future, False)) for point in points[:3]]
    batch += [spawn(blueprint, points[0]), carla.command.DestroyActor(999_999)]
    answers = session.client.apply_batch_sync(batch, True)
    assert [bool(answer.error) for answer in answers] == [False, False, False, True, True]
    cars = [session.world.get_actor(answer.actor_id) for answer in answers[:3]]
    session.client.apply_batch_sync(
        [carla.command.ApplyVehicleControl(c, carla.VehicleControl(throttle=1)) for c in cars]
    )
    before = [car.get_location() for car in cars]
    session.ticks(10)
    assert [car.get_location() for car in cars] == before
    session.client.apply_batch_sync([carla.command.DestroyActor(car) for car in cars], True)
    assert not session.world.get_actors().filter("vehicle.*")


@pytest.mark.any_simulator
def test_then_acts_on_the_new_actor_whatever_actor_it_names(session):
    """As in CARLA (CarlaServer.cpp)."""
    command, brake = carla.command, carla.VehicleLightState.Brake
    other = session.car(1)
    blueprint, place = session.blueprint("vehicle.audi.tt"), session.world.get_map().get_spawn_points()[0]
    spawn = command.SpawnActor(blueprint, place).then(command.SetVehicleLightState(other.id, brake))
    spawn = spawn.then(command.ApplyVehicleControl(other.id, carla.VehicleControl(throttle=1.0)))
    (answer,) = session.client.apply_batch_sync([spawn.then(command.SetEnableGravity(other.id, True))], True)
    assert not answer.error
    session.actors.append(session.world.get_actor(answer.actor_id))
    session.ticks(20)
    assert session.actors[-1].get_light_state() == brake
    assert session.actors[-1].get_control().throttle == 1.0
    assert speed(session.actors[-1]) > 1.0
    assert other.get_light_state() == carla.VehicleLightState.NONE
    assert other.get_control().throttle == 0.0


@pytest.mark.any_simulator
@pytest.mark.parametrize("kind", [carla.AttachmentType.SpringArm, carla.AttachmentType.SpringArmGhost])
def test_a_batch_attaches_rigidly_whatever_it_asks_for(session, kind):
    """As in CARLA (CarlaServer.cpp)."""
    car, arm = session.car(), carla.Transform(carla.Location(x=-4.0, z=3.0))
    spawn = carla.command.SpawnActor(session.blueprint("sensor.other.gnss"), arm, car, kind, "")
    (answer,) = session.client.apply_batch_sync([spawn], True)
    sensor = session.world.get_actor(answer.actor_id)
    session.actors.append(sensor)
    assert sensor.get_location().distance(car.get_transform().transform(arm.location)) < 1e-3
    assert sensor.get_transform().rotation.pitch == pytest.approx(car.get_transform().rotation.pitch, abs=0.01)


@pytest.mark.any_simulator
def test_weather_and_lights_are_kept(session):
    session.world.set_weather(carla.WeatherParameters.HardRainNoon)
    assert session.world.get_weather() == carla.WeatherParameters.HardRainNoon
    car = session.car()
    car.set_light_state(carla.VehicleLightState.Brake)
    assert car.get_light_state() == carla.VehicleLightState.Brake
    assert dict(session.world.get_vehicles_light_states()) == {car.id: carla.VehicleLightState.Brake}


def test_numbers_that_are_none_are_refused_and_change_nothing(session):
    car = session.car()
    session.ticks(20)  # it is let down from above the road
    place = car.get_transform()
    car.set_transform(carla.Transform(carla.Location(x=math.nan)))
    car.apply_control(carla.VehicleControl(throttle=math.nan, steer=math.nan))
    session.world.tick()
    assert car.get_location().distance(place.location) < 0.01


def test_the_scenery_is_listed_with_its_labels(session):
    houses = session.world.get_environment_objects(carla.CityObjectLabel.Buildings)
    assert houses
    assert all(house.type == carla.CityObjectLabel.Buildings for house in houses)
    assert len(session.world.get_level_bbs(carla.CityObjectLabel.Buildings)) == len(houses)


@pytest.mark.any_simulator
def test_cars_are_kept_below_the_ground_until_they_are_wanted(session):
    standing = session.car()
    below = standing.get_transform()
    below.location.z = -500.0
    kept = session.world.spawn_actor(session.blueprint("vehicle.tesla.model3"), below)
    session.actors.append(kept)
    session.world.tick()
    kept.set_simulate_physics(False)
    session.ticks(5)
    assert kept.get_location().z == pytest.approx(-500.0, abs=1.0)
