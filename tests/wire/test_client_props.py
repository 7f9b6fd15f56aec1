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
    person.set_simulate_physics(False)
    session.ticks(5)
    assert person.get_location().z == pytest.approx(below.location.z, abs=0.1)
    person.set_location(ahead(session, 10.0, 1.0).location)
    person.set_simulate_physics(True)
    session.ticks(20)
    assert person.get_location().z > car.get_location().z
