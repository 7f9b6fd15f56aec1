"""The real client against a real server: things set down on the street, and walkers kept below it."""

from __future__ import annotations

import queue

import carla
import numpy as np
import pytest

from tests.crowd import PATIENCE_S

ONE_SERVER = True


def ahead(session, metres, z=0.0):
    where = session.world.get_map().get_spawn_points()[0]
    where.location += carla.Location(where.get_forward_vector() * metres)
    where.location.z += z
    return where


def prop(session, name, where):
    actor = session.world.spawn_actor(session.blueprint(f"static.prop.{name}"), where)
    session.actors.append(actor)
    return actor


@pytest.mark.any_simulator
def test_every_prop_that_the_library_lists_can_be_spawned(session):
    listed = session.world.get_blueprint_library().filter("static.prop.*")
    assert len(listed) > 80
    for number, blueprint in enumerate(listed):
        where = carla.Transform(carla.Location(x=3.0 * number, z=50.0))
        session.actors.append(session.world.spawn_actor(blueprint, where))
        assert session.actors[-1].attributes["role_name"] == "prop"
    session.world.tick()
    assert len(session.world.get_actors().filter("static.prop.*")) >= len(listed)


def test_a_prop_stops_a_car_and_is_named_by_its_collision_sensor(session):
    car = session.car()
    machine = prop(session, "vendingmachine", ahead(session, 15.0))
    events: queue.Queue[carla.CollisionEvent] = queue.Queue()
    session.sensor("sensor.other.collision", car, events.put)
    car.apply_control(carla.VehicleControl(throttle=1.0))
    session.ticks(120)
    event = events.get(timeout=PATIENCE_S)
    assert event.other_actor.id == machine.id
    assert event.normal_impulse.length() > 100.0
    front = car.get_location().distance(machine.get_location()) - car.bounding_box.extent.x
    assert front == pytest.approx(machine.bounding_box.extent.x, abs=0.2)


def test_a_prop_with_physics_is_pushed_out_of_the_way(session):
    car = session.car()
    cone = prop(session, "trafficcone01", ahead(session, 15.0))
    cone.set_simulate_physics(True)
    before = cone.get_location()
    car.apply_control(carla.VehicleControl(throttle=1.0))
    session.ticks(120)
    assert car.get_location().distance(before) > 5.0
    assert cone.get_location().distance(before) > 5.0


def test_only_a_prop_without_collisions_lets_a_car_through(session):
    where = ahead(session, 0.0)
    machine = prop(session, "vendingmachine", where)
    assert session.world.try_spawn_actor(session.blueprint("vehicle.audi.tt"), where) is None
    machine.set_location(ahead(session, 15.0).location)
    session.world.tick()
    car = session.car()
    machine.set_collisions(False)
    car.apply_control(carla.VehicleControl(throttle=1.0))
    session.ticks(120)
    assert car.get_location().distance(where.location) > 20.0


@pytest.mark.parametrize("other", ["prop", "door"])
def test_what_stands_without_physics_does_not_move_what_else_stands(session, other):
    """As parked cars of hybrid traffic do: nothing moves either, and the ticks go on."""
    car = session.car()
    if other == "prop":
        there = prop(session, "streetbarrier", ahead(session, 0.0))
    else:
        there = session.car(ahead_m=2.5 * car.bounding_box.extent.x)
        there.set_simulate_physics(False)
        there.open_door(carla.VehicleDoor.All)
    car.set_simulate_physics(False)
    events: queue.Queue[carla.CollisionEvent] = queue.Queue()
    session.sensor("sensor.other.collision", car, events.put)
    beside = there.get_transform()
    if other == "door":
        beside.location += carla.Location(beside.get_right_vector() * 2.0)
    car.set_transform(beside)
    before = [actor.get_location() for actor in (car, there)] if session.world.tick() else []
    session.ticks(10)
    assert [actor.get_location() for actor in (car, there)] == before
    assert events.empty()


def test_a_prop_on_its_own_car_does_not_shove_it(session):
    car, places = session.car(), []
    events: queue.Queue[carla.CollisionEvent] = queue.Queue()
    session.sensor("sensor.other.collision", car, events.put)
    for attached in (False, True):
        start = ahead(session, 0.0, z=0.2)
        car.set_transform(start)
        car.set_target_velocity(carla.Vector3D())
        if attached:
            where = carla.Transform(carla.Location(0.0, 0.2, 1.0))
            box = session.world.spawn_actor(session.blueprint("static.prop.box01"), where, car)
            session.actors.append(box)
        session.ticks(20)
        car.apply_control(carla.VehicleControl(throttle=0.5))
        session.ticks(40)
        gone = car.get_location() - start.location
        right = start.get_right_vector()
        places.append(abs(gone.x * right.x + gone.y * right.y))
        car.apply_control(carla.VehicleControl(brake=1.0))
        session.ticks(40)
    assert max(places) < 0.5
    assert events.empty()
    relative = box.get_transform().location - car.get_transform().location
    assert relative.length() < 2.0


def test_a_car_without_physics_tells_no_velocity(session):
    car = session.car()
    session.ticks(10)
    car.set_simulate_physics(False)
    car.set_target_velocity(carla.Vector3D(7.0, 0.0, 0.0))
    session.ticks(2)
    assert car.get_velocity().length() == 0.0
    car.enable_constant_velocity(carla.Vector3D(5.0, 0.0, 0.0))
    session.ticks(2)
    assert car.get_velocity().length() == 0.0


def test_a_prop_is_seen(session):
    camera = session.camera(None, 160, 120)
    eye = ahead(session, 0.0, 1.5)
    camera.sensor.set_transform(eye)
    session.ticks(1)
    # Both messages are held on to: an array of a message's pixels doesn't keep their memory from the next message.
    empty = camera.at(session.world.tick())
    prop(session, "vendingmachine", ahead(session, 8.0))
    image = camera.at(session.world.tick())
    before, after = (np.frombuffer(each.raw_data, np.uint8).reshape(120, 160, 4) for each in (empty, image))
    changed = (before != after).any(axis=2)
    assert 150 < changed.sum() < 600, "1.1 m by 2 m, 8 m away"


def test_a_walker_is_kept_below_a_car_until_it_is_wanted(session):
    car = session.car()
    below = ahead(session, 0.0, -50.0)
    person = session.world.spawn_actor(session.blueprint("walker.pedestrian.0001"), below)
    session.actors.append(person)
    session.ticks(3)  # scenario_runner sets it down there, ticks, and only then takes its physics
    low = person.get_location().z
    assert low < below.location.z
    person.set_simulate_physics(False)
    session.ticks(5)
    assert person.get_location().z == pytest.approx(low, abs=0.1)
    person.set_location(ahead(session, 10.0, 1.0).location)
    person.set_simulate_physics(True)
    session.ticks(20)
    assert person.get_location().z > car.get_location().z
