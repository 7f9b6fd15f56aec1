"""The real client against a real server: CARLA's vehicles, their attributes, how they drive and what they look like."""

from __future__ import annotations

import random
import re

import carla
import numpy as np
import pytest

ONE_SERVER = True

# CARLA 0.9.16's vehicle catalogue, by base type.
CATALOGUE = {
    "car": "audi.a2 audi.etron audi.tt bmw.grandtourer chevrolet.impala citroen.c3 dodge.charger_2020 "
    "dodge.charger_police dodge.charger_police_2020 ford.crown ford.mustang jeep.wrangler_rubicon lincoln.mkz_2017 "
    "lincoln.mkz_2020 mercedes.coupe mercedes.coupe_2020 micro.microlino mini.cooper_s mini.cooper_s_2021 nissan.micra "
    "nissan.patrol nissan.patrol_2021 seat.leon tesla.model3 toyota.prius",
    "truck": "carlamotors.carlacola carlamotors.european_hgv carlamotors.firetruck tesla.cybertruck",
    "van": "ford.ambulance mercedes.sprinter volkswagen.t2 volkswagen.t2_2021",
    "bus": "mitsubishi.fusorosa",
    "motorcycle": "harley-davidson.low_rider kawasaki.ninja vespa.zx125 yamaha.yzf",
    "bicycle": "bh.crossbike diamondback.century gazelle.omafiets",
}
IDS = {base: {f"vehicle.{name}" for name in names.split()} for base, names in CATALOGUE.items()}


@pytest.mark.any_simulator
def test_the_vehicles_are_those_of_carlas_catalogue(session):
    found: dict[str, set[str]] = {}
    for blueprint in session.world.get_blueprint_library().filter("vehicle.*"):
        found.setdefault(blueprint.get_attribute("base_type").as_str(), set()).add(blueprint.id)
    assert found == IDS


@pytest.mark.any_simulator
def test_every_choice_that_is_offered_can_be_taken(session):
    rng = random.Random(1)
    for blueprint in session.world.get_blueprint_library():
        for attribute in blueprint:
            if attribute.is_modifiable:
                # As generate_traffic and manual_control do.
                blueprint.set_attribute(attribute.id, rng.choice(attribute.recommended_values))
        if blueprint.id.startswith("vehicle."):
            wheels = blueprint.get_attribute("number_of_wheels").as_int()
            assert blueprint.has_attribute("driver_id") == (wheels == 2), blueprint.id


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("vehicle.lincoln.mkz_2017", {"generation": 1, "special_type": "", "has_lights": False}),
        ("vehicle.ford.crown", {"generation": 2, "special_type": "taxi", "has_dynamic_doors": True}),
        ("vehicle.dodge.charger_police", {"generation": 1, "special_type": "emergency", "number_of_wheels": 4}),
        ("vehicle.bh.crossbike", {"generation": 1, "base_type": "bicycle", "number_of_wheels": 2}),
    ],
)
@pytest.mark.any_simulator
def test_a_vehicle_has_the_attributes_of_the_catalogue(session, name, attributes):
    blueprint = session.blueprint(name)
    for key, value in attributes.items():
        attribute = blueprint.get_attribute(key)
        read = {bool: attribute.as_bool, int: attribute.as_int, str: attribute.as_str}[type(value)]
        assert read() == value, key


def test_every_vehicle_spawns_drives_turns_and_brakes(session):
    where = session.world.get_map().get_spawn_points()[0]
    for base, names in IDS.items():
        for name in sorted(names):
            vehicle = session.world.spawn_actor(session.blueprint(name), where)
            session.ticks(5)
            box, start = vehicle.bounding_box, vehicle.get_transform()
            assert box.location.z == pytest.approx(box.extent.z)
            assert len(vehicle.get_physics_control().wheels) == 4
            vehicle.apply_control(carla.VehicleControl(throttle=1.0))
            session.ticks(40)
            speed = vehicle.get_velocity().length()
            assert (1.5 if base == "bicycle" else 3.0) < speed < 14.0, name
            assert (vehicle.get_location() - start.location).dot(start.get_forward_vector()) > 1.0, name
            vehicle.apply_control(carla.VehicleControl(brake=1.0, steer=0.3))
            session.ticks(60)
            assert vehicle.get_velocity().length() < 0.1, name
            assert abs(vehicle.get_transform().rotation.roll) < 5.0, name
            vehicle.destroy()


def test_a_bus_is_told_wider_than_it_is(session):
    bus = session.car(name="vehicle.mitsubishi.fusorosa")
    assert 2 * bus.bounding_box.extent.y == pytest.approx(3.94, abs=0.01)
    beside = bus.get_transform()
    beside.location += beside.get_right_vector() * -2.8
    session.actors.append(session.world.spawn_actor(session.blueprint("vehicle.micro.microlino"), beside))


def shown(session, name):
    """Return the pixels that a vehicle changes in the picture of a camera 9 m to its side, ahead of it."""
    where = session.world.get_map().get_spawn_points()[0]
    beside = where.transform(carla.Location(x=6.0, y=-7.0, z=1.5))
    sensor = session.camera(None, 320, 200)
    sensor.sensor.set_transform(carla.Transform(beside, carla.Rotation(yaw=where.rotation.yaw + 130.0)))
    pictures = []
    for there in (False, True):
        vehicle = session.world.spawn_actor(session.blueprint(name, color="20,200,40"), where) if there else None
        for _ in range(5):
            session.world.tick()
            image = sensor.next()
        pictures.append(np.frombuffer(image.raw_data, np.uint8).reshape(200, 320, 4)[..., :3].astype(int))
        if vehicle is not None:
            vehicle.destroy()
    return np.abs(pictures[1] - pictures[0]).sum(axis=2) > 20, pictures[1]


def test_each_class_of_vehicle_has_its_own_shape(session):
    seen = {}
    for name in ("audi.tt", "mercedes.sprinter", "carlamotors.european_hgv", "yamaha.yzf", "bh.crossbike"):
        changed, picture = shown(session, f"vehicle.{name}")
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        filled = changed.sum() / (len(rows) * len(columns))
        green = picture[changed][:, 1] - picture[changed][:, [0, 2]].max(axis=1)
        seen[name] = int(changed.sum()), len(rows), float(filled), float((green > 30).mean())
    area, height, filled, paint = zip(*seen.values(), strict=True)
    assert area[2] > area[1] > area[0] > area[3] > area[4] > 100  # HGV, van, car, motorcycle, bicycle
    assert height[2] > height[1] > height[0]
    assert filled[4] < 0.6 < filled[1]  # one sees through a bicycle and its rider, not through a van
    assert min(paint) > 0.02


def driven(session, ticks, sticky, again=0):
    """Return how far a car gets in so many ticks with full throttle, applied on the first ``again``, or once."""
    where = session.world.get_map().get_spawn_points()[0]
    car = session.world.spawn_actor(session.blueprint("vehicle.tesla.model3", sticky_control=sticky), where)
    session.ticks(10)
    start = car.get_location()
    for number in range(ticks):
        if number == 0 or number < again:
            car.apply_control(carla.VehicleControl(throttle=1.0))
        session.world.tick()
        if number == 0:
            assert car.get_control().throttle == 1.0
    far, throttle = car.get_location().distance(start), car.get_control().throttle
    car.destroy()
    return far, throttle


@pytest.mark.any_simulator
def test_without_sticky_control_a_control_holds_for_one_tick(session):
    held, throttle = driven(session, 60, "true")
    assert (throttle, held > 20.0) == (1.0, True)
    assert driven(session, 60, "false", again=60)[0] == pytest.approx(held, abs=1e-3)
    once, throttle = driven(session, 60, "false")
    assert throttle == 0.0
    assert once < 1.0


def slide(session, car, ticks=40):
    """Return how far a car gets with the brake on from 15 m/s."""
    where = session.world.get_map().get_spawn_points()[0]
    car.set_transform(where)
    session.ticks(10)
    car.set_target_velocity(where.get_forward_vector() * 15.0)
    car.apply_control(carla.VehicleControl(brake=1.0))
    start = car.get_location()
    session.ticks(ticks)
    return car.get_location().distance(start)


def friction(car):
    return car.get_physics_control().wheels[0].tire_friction


def test_a_friction_trigger_changes_tyres_only_inside_it(session):
    car = session.car()
    dry, own = slide(session, car), friction(car)
    where = session.world.get_map().get_spawn_points()[0]
    box = {"extent_x": "6000.0", "extent_y": "6000.0", "extent_z": "300.0"}  # centimetres
    trigger = session.world.spawn_actor(session.blueprint("static.trigger.friction", friction="0.7", **box), where)
    icy = slide(session, car)
    assert icy > 1.5 * dry
    assert friction(car) == pytest.approx(0.7)
    points = session.world.get_map().get_spawn_points()
    car.set_transform(max(points, key=lambda point: point.location.distance(where.location)))
    session.world.tick()
    assert friction(car) == pytest.approx(own)
    car.set_transform(where)
    session.world.tick()
    assert friction(car) == pytest.approx(0.7)
    trigger.destroy()
    session.world.tick()
    assert friction(car) == pytest.approx(own)
    assert slide(session, car) == pytest.approx(dry, abs=0.1)


def with_wheels(car, **values):
    figures = car.get_physics_control()
    wheels = figures.wheels
    for wheel in wheels:
        for name, value in values.items():
            setattr(wheel, name, value)
    figures.wheels, figures.drag_coefficient = wheels, 0.0
    car.apply_physics_control(figures)


def test_tyres_without_friction_neither_brake_nor_slow(session):
    car = session.car()
    with_wheels(car, tire_friction=0.0)
    assert slide(session, car, ticks=20) == pytest.approx(15.0, abs=0.1)
    assert car.get_velocity().length() == pytest.approx(15.0, abs=0.01)


def test_tyre_stiffness_limits_drive_brakes_and_turns(session):
    car = session.car()
    stiff = slide(session, car)
    with_wheels(car, long_stiff_value=50.0)
    assert slide(session, car) > 2.0 * stiff
    assert car.get_physics_control().wheels[0].long_stiff_value == 50.0

    def turned(**values):
        with_wheels(car, long_stiff_value=1000.0, **values)
        where = session.world.get_map().get_spawn_points()[0]
        car.set_transform(where)
        car.set_target_angular_velocity(carla.Vector3D())
        car.set_target_velocity(where.get_forward_vector() * 12.0)
        car.apply_control(carla.VehicleControl(steer=0.1))
        session.ticks(20)
        return car.get_transform().rotation.yaw - where.rotation.yaw

    assert turned(lat_stiff_value=2.0) < 0.8 * turned(lat_stiff_value=17.0)


@pytest.mark.any_simulator
def test_every_blueprint_has_an_id_of_three_parts(session):
    # The spectator is an actor, but none that can be spawned: not in the library.
    ids = [blueprint.id for blueprint in session.world.get_blueprint_library()]
    assert ids
    assert all(re.fullmatch(r"[^.]+\.[^.]+\.[^.]+", name) for name in ids)
    assert session.world.get_spectator().type_id == "spectator"
