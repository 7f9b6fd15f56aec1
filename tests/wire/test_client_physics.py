"""The real client against a real server: forces, physics figures, wheels, telemetry, doors, and what is hit."""

from __future__ import annotations

import math
import time

import carla
import pytest

from tests.crowd import until
from tests.wire.conftest import DELTA_S

ONE_SERVER = True

GRAVITY = 9.81
WHEELS = [carla.VehicleWheelLocation.values[number] for number in range(4)]


def standing(session, name="vehicle.tesla.model3", **where):
    """Return a car that has been let down on the road."""
    car = session.car(name=name, **where)
    session.ticks(20)
    return car


def floating(session):
    """Return a car in the air, which neither falls nor touches the road: nothing but what a test does acts on it."""
    car = session.car()
    session.ticks(20)
    car.set_enable_gravity(False)
    car.set_location(car.get_location() + carla.Location(z=3.0))
    car.set_target_velocity(carla.Vector3D())
    session.ticks(2)
    return car


def parts(vector):
    return vector.x, vector.y, vector.z


def test_an_impulse_over_the_mass_changes_the_velocity(session):
    car = floating(session)
    mass = car.get_physics_control().mass
    for push in ((9000.0, 0.0, 0.0), (0.0, -4000.0, 0.0), (3000.0, 5000.0, 0.0), (0.0, 0.0, 2000.0)):
        car.set_target_velocity(carla.Vector3D())
        car.add_impulse(carla.Vector3D(*push))
        session.world.tick()
        assert parts(car.get_velocity()) == pytest.approx([part / mass for part in push], abs=0.01)


def test_a_force_acts_for_one_tick(session):
    car = floating(session)
    mass = car.get_physics_control().mass
    car.add_force(carla.Vector3D(y=8000.0))
    session.ticks(3)
    assert car.get_velocity().y == pytest.approx(8000.0 * DELTA_S / mass, abs=0.01)


def test_an_angular_impulse_is_counted_as_carla_counts_it(session):
    car = floating(session)
    inertia = 2900.0  # kg m², motion.vehicles
    car.add_angular_impulse(carla.Vector3D(z=1e9))
    session.world.tick()
    assert car.get_angular_velocity().z == pytest.approx(1e9 * 1e-4 / inertia, rel=1e-3)
    batch = [carla.command.ApplyTorque(car, carla.Vector3D(z=-1e9 / DELTA_S))]
    session.client.apply_batch_sync(batch, False)
    session.world.tick()
    assert car.get_angular_velocity().z == pytest.approx(0.0, abs=1e-2)


def test_a_constant_velocity_is_held_in_the_vehicles_frame(session):
    car = standing(session)
    for ahead, aside in ((8.0, 0.0), (-4.0, 0.0), (3.0, 1.0)):
        car.enable_constant_velocity(carla.Vector3D(ahead, aside, 0.0))
        session.ticks(20)
        at, velocity = car.get_transform(), car.get_velocity()
        assert velocity.dot(at.get_forward_vector()) == pytest.approx(ahead, abs=0.15)
        assert velocity.dot(at.get_right_vector()) * aside >= 0.0
    car.disable_constant_velocity()
    session.ticks(60)
    assert car.get_velocity().length() < 3.0


def test_target_velocities_are_set_at_once(session):
    car = floating(session)
    car.set_target_velocity(carla.Vector3D(1.0, -2.0, 0.5))
    car.set_target_angular_velocity(carla.Vector3D(z=30.0))
    session.world.tick()
    assert car.get_angular_velocity().z == pytest.approx(30.0, abs=0.01)
    assert car.get_velocity().length() == pytest.approx(math.sqrt(5.25), abs=0.05)


def test_a_teleport_keeps_the_velocity_in_the_worlds_frame(session):
    car = floating(session)
    velocity = 6.0, -8.0, 0.5
    car.set_target_velocity(carla.Vector3D(*velocity))
    for turn_deg in (90.0, 180.0, -45.0):
        there = car.get_transform()
        there.rotation.yaw += turn_deg
        car.set_transform(there)
        session.world.tick()
        assert parts(car.get_velocity()) == pytest.approx(velocity, abs=0.05)


def test_without_gravity_it_floats_and_with_it_it_falls(session):
    car = floating(session)
    height = car.get_location().z
    session.ticks(20)
    assert car.get_location().z == pytest.approx(height, abs=1e-3)
    car.set_enable_gravity(True)
    session.ticks(10)
    assert car.get_velocity().z == pytest.approx(-GRAVITY * 10 * DELTA_S, rel=0.02)


def test_a_car_is_thrown_up_by_an_impulse_from_below(session):
    car = standing(session)
    road = car.get_location().z
    car.add_impulse(carla.Vector3D(z=3.0 * car.get_physics_control().mass))
    heights = []
    for _ in range(20):
        session.world.tick()
        heights.append(car.get_location().z - road)
    assert max(heights) == pytest.approx(3.0**2 / (2 * GRAVITY), abs=0.1)
    assert heights[-1] == pytest.approx(0.0, abs=0.02)


def launch(session, car, throttle=0.4, ticks=20, **control):
    """Return the speed that a car reaches from standstill at the first spawn point."""
    car.set_transform(session.world.get_map().get_spawn_points()[0])
    car.set_target_velocity(carla.Vector3D())
    car.apply_control(carla.VehicleControl(brake=1.0))
    session.ticks(20)
    car.apply_control(carla.VehicleControl(throttle=throttle, **control))
    session.ticks(ticks)
    return car.get_velocity().length()


def test_physics_figures_come_back_and_change_nothing(session):
    car = session.car()
    before, figures = launch(session, car), car.get_physics_control()
    car.apply_physics_control(figures)
    assert car.get_physics_control() == figures or launch(session, car) == pytest.approx(before, rel=1e-4)
    assert launch(session, car) == pytest.approx(before, rel=1e-4)


def test_engine_gears_and_final_ratio_have_their_effect(session):
    car = session.car()
    figures = car.get_physics_control()
    figures.torque_curve = [carla.Vector2D(0.0, 400.0), carla.Vector2D(6000.0, 400.0)]
    figures.max_rpm, figures.final_ratio = 6000.0, 4.0
    figures.forward_gears = [carla.GearPhysicsControl(3.0, 0.3, 0.8), carla.GearPhysicsControl(1.5, 0.3, 0.8)]
    car.apply_physics_control(figures)
    assert [gear.ratio for gear in car.get_physics_control().forward_gears] == [3.0, 1.5]
    first, second = (launch(session, car, manual_gear_shift=True, gear=gear) for gear in (1, 2))
    assert car.get_control().gear == 2
    assert first == pytest.approx(2.0 * second, rel=0.15)
    assert launch(session, car, manual_gear_shift=True, gear=0) == pytest.approx(0.0, abs=0.01)
    figures.final_ratio = 2.0
    car.apply_physics_control(figures)
    assert launch(session, car, manual_gear_shift=True, gear=1) == pytest.approx(0.5 * first, rel=0.15)
    figures.final_ratio = 4.0
    car.apply_physics_control(figures)
    launch(session, car, throttle=1.0, ticks=120)
    assert car.get_control().gear == 2  # by itself


def test_brakes_wheels_and_mass_have_their_effect(session):
    car = session.car()

    def stopping_m():
        where = session.world.get_map().get_spawn_points()[0]
        car.set_transform(where)
        session.ticks(10)
        car.set_target_velocity(where.get_forward_vector() * 10.0)
        car.apply_control(carla.VehicleControl(brake=0.3))
        start = car.get_location()
        session.ticks(120)
        return car.get_location().distance(start)

    whole = stopping_m()
    figures = car.get_physics_control()
    halved = figures.wheels
    for wheel in halved:
        wheel.max_brake_torque *= 0.5
    figures.wheels = halved
    car.apply_physics_control(figures)
    assert stopping_m() == pytest.approx(2.0 * whole, rel=0.15)
    figures.mass *= 2.0
    car.apply_physics_control(figures)
    assert stopping_m() == pytest.approx(4.0 * whole, rel=0.25)


def test_the_wheels_steer_about_one_centre(session):
    car = standing(session)
    assert [car.get_wheel_steer_angle(wheel) for wheel in WHEELS] == [0.0] * 4
    car.apply_control(carla.VehicleControl(throttle=0.2, steer=0.4))
    session.ticks(20)
    left, right, *rear = (car.get_wheel_steer_angle(wheel) for wheel in WHEELS)
    assert 20.0 < left < right <= 0.4 * car.get_physics_control().wheels[0].max_steer_angle + 1e-3
    assert rear == [0.0, 0.0]
    assert all(car.get_wheel_pitch_angle(wheel) < 0.0 for wheel in WHEELS)


def test_a_bicycles_rear_wheel_doesnt_steer(session):
    bike = standing(session, "vehicle.bh.crossbike")
    bike.apply_control(carla.VehicleControl(throttle=0.2, steer=0.4))
    session.ticks(10)
    assert bike.get_wheel_steer_angle(carla.VehicleWheelLocation.Front_Wheel) > 5.0
    assert bike.get_wheel_steer_angle(carla.VehicleWheelLocation.Back_Wheel) == 0.0


def test_wheels_are_posed_only_without_physics(session):
    car = standing(session)
    wheel = carla.VehicleWheelLocation.FL_Wheel

    def pose():
        car.set_wheel_steer_direction(wheel, 25.0)
        car.set_wheel_pitch_angle(wheel, -40.0)
        return car.get_wheel_steer_angle(wheel), car.get_wheel_pitch_angle(wheel)

    assert pose() == (0.0, pytest.approx(0.0, abs=1.0))
    car.set_simulate_physics(False)
    assert pose() == (25.0, -40.0)
    car.set_simulate_physics(True)
    assert car.get_wheel_steer_angle(wheel) == 0.0


def test_without_physics_a_vehicle_has_no_velocity(session):
    car = standing(session)
    car.set_target_velocity(carla.Vector3D(x=8.0))
    session.ticks(3)
    car.set_simulate_physics(False)
    session.ticks(2)
    assert parts(car.get_velocity()) == parts(car.get_acceleration()) == (0.0, 0.0, 0.0)
    place = car.get_location()
    car.set_simulate_physics(True)
    session.ticks(2)
    assert car.get_location().distance(place) < 0.01


def test_telemetry_is_that_of_the_motion(session):
    car = standing(session)
    car.apply_control(carla.VehicleControl(throttle=0.5))
    session.ticks(30)
    told = car.get_telemetry_data()
    assert told.speed == pytest.approx(car.get_velocity().length(), rel=0.01)
    assert (told.throttle, told.brake, told.gear) == (0.5, 0.0, car.get_control().gear)
    mass = car.get_physics_control().mass
    assert sum(wheel.tire_load for wheel in told.wheels) == pytest.approx(mass * GRAVITY, rel=1e-3)
    push = sum(wheel.long_force for wheel in told.wheels) - told.drag
    assert push == pytest.approx(mass * car.get_acceleration().length(), rel=0.05)
    assert told.speed < told.wheels[0].omega * 0.335 < 1.2 * told.speed  # it drives, and slips for it
    assert told.engine_rpm > 100.0


def test_ackermann_settings_are_carlas_and_can_be_set(session):
    car = session.car()
    settings = car.get_ackermann_controller_settings()
    assert (settings.speed_kp, settings.speed_kd, settings.accel_kp) == pytest.approx((0.15, 0.25, 0.01))
    settings.speed_kp, settings.accel_kp = 0.2, 0.05
    car.apply_ackermann_controller_settings(settings)
    assert car.get_ackermann_controller_settings().accel_kp == pytest.approx(0.05)


def hits(session, actor):
    """Listen to an actor's collisions: a growing list of (frame, other's type, impulse)."""
    found = []
    session.sensor(
        "sensor.other.collision",
        actor,
        lambda event: found.append((event.frame, event.other_actor.type_id, event.normal_impulse)),
    )
    session.world.tick()
    return found


def told(found, frame, least=0.0):
    """Return once the client has told of a hit in a frame, with at least an impulse: it tells them one by one."""
    until(lambda: any(at == frame and impulse.length() >= least for at, _, impulse in found))


def test_an_open_door_is_run_into_and_a_closed_one_isnt(session):
    parked = standing(session, "vehicle.ford.crown", ahead_m=25.0)
    parked.set_simulate_physics(False)
    where = session.world.get_map().get_spawn_points()[0]
    where.location += where.get_right_vector() * -2.3
    passing = session.world.spawn_actor(session.blueprint("vehicle.micro.microlino"), where)
    session.actors.append(passing)
    found = hits(session, passing)

    def drive_by():
        passing.set_transform(where)
        passing.set_target_velocity(where.get_forward_vector() * 12.0)
        session.ticks(60)
        time.sleep(0.2)
        return [other for _, other, _ in found]

    assert drive_by() == []
    parked.open_door(carla.VehicleDoor.All)
    assert set(drive_by()) == {"vehicle.ford.crown"}
    found.clear()
    parked.close_door(carla.VehicleDoor.All)
    assert drive_by() == []


def test_a_car_set_into_something_is_driven_out_with_an_event(session):
    session.world = session.client.load_world("Lite02")  # it has signs
    car = standing(session)
    found = hits(session, car)
    mass = car.get_physics_control().mass
    things = session.world.get_environment_objects(carla.CityObjectLabel.Any)
    for thing in [one for kind in {one.type for one in things} for one in things if one.type == kind][::20]:
        found.clear()
        car.set_target_velocity(carla.Vector3D())
        car.set_transform(carla.Transform(thing.transform.location, carla.Rotation(yaw=20.0)))
        frame = session.world.tick()
        told(found, frame, 0.9 * mass)  # PUSHED_MPS
        assert all(other.startswith("static.") for at, other, _ in found if at == frame), thing.name
        if thing.type == carla.CityObjectLabel.Buildings:
            session.ticks(20)
            place = car.get_location() + carla.Location(z=0.5)
            upright = carla.BoundingBox(carla.Location(), thing.bounding_box.extent)  # `contains` reads no rotation
            assert not upright.contains(place, thing.transform), thing.name


def test_a_crash_into_a_wall_takes_the_cars_momentum(session):
    car = standing(session)
    found = hits(session, car)
    house = session.world.get_environment_objects(carla.CityObjectLabel.Buildings)[0]
    box, turn = house.bounding_box, house.transform.rotation
    front = carla.Transform(house.transform.location, turn).transform(carla.Location(y=-box.extent.y - 4.0))
    car.set_transform(carla.Transform(carla.Location(front.x, front.y, 0.1), carla.Rotation(yaw=turn.yaw + 90.0)))
    session.world.tick()
    car.set_target_velocity(car.get_transform().get_forward_vector() * 10.0)
    session.ticks(8)
    until(lambda: found)
    first = found[0]
    assert first[1] == "static.building"
    mass = car.get_physics_control().mass
    assert first[2].length() == pytest.approx(1.1 * 10.0 * mass, rel=0.05)
    assert first[2].dot(car.get_transform().get_forward_vector()) < 0.0


def test_a_crash_into_a_car_keeps_momentum(session):
    car, other = standing(session), session.car(ahead_m=9.0, name="vehicle.audi.tt")
    session.ticks(20)
    found = hits(session, car)
    masses = [one.get_physics_control().mass for one in (car, other)]
    car.set_target_velocity(car.get_transform().get_forward_vector() * 9.0)
    speeds = {}
    for _ in range(40):
        if found:
            break
        before = car.get_velocity().length()
        frame = session.world.tick()
        speeds[frame] = before, other.get_velocity().length()
        time.sleep(0.02)
    until(lambda: found)
    frame, kind, impulse = found[0]
    before, after = speeds[frame]
    assert kind == other.type_id
    assert impulse.length() == pytest.approx(masses[1] * after, rel=0.01)
    assert impulse.length() == pytest.approx(1.1 * before / sum(1.0 / mass for mass in masses), rel=0.03)
    assert impulse.dot(car.get_transform().get_forward_vector()) < 0.0


def test_a_person_takes_the_momentum_that_the_car_loses(session):
    car = standing(session)
    ahead = car.get_transform()
    ahead.location += ahead.get_forward_vector() * 6.0 + carla.Location(z=1.0)
    person = session.world.spawn_actor(session.blueprint("walker.pedestrian.0015", is_invincible="false"), ahead)
    session.actors.append(person)
    by_car, by_person = hits(session, car), hits(session, person)
    car.set_target_velocity(ahead.get_forward_vector() * 8.0)
    session.ticks(15)
    until(lambda: by_car and by_person)
    assert by_car[0][1] == person.type_id
    assert by_person[0][1] == car.type_id
    assert parts(by_car[0][2]) == pytest.approx([-part for part in parts(by_person[0][2])], abs=1.0)
    assert by_car[0][2].length() == pytest.approx(8.0 * 75.0, rel=0.1)


def test_other_physics_engines_are_refused_and_change_nothing(session):
    car = standing(session)
    place = car.get_location()
    car.enable_carsim("file")  # the client throws the answer away
    car.enable_chrono_physics(10, 0.01, "", "", "", "")
    car.restore_physx_physics()
    session.ticks(5)
    assert car.get_location().distance(place) < 0.01
