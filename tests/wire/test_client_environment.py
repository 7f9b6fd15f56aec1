"""The real client against a real server: what a map has beside its roads, layers, lights, boxes and actors' parts."""

from __future__ import annotations

import math

import carla
import numpy as np
import pytest

ONE_SERVER = True

ANY, BUILDINGS = carla.CityObjectLabel.Any, carla.CityObjectLabel.Buildings


def pixels(camera, session):
    """Return the newest picture."""
    camera_frame = session.world.tick()
    image = camera.at(camera_frame)
    return np.frombuffer(image.raw_data, np.uint8).reshape(image.height, image.width, 4)[..., :3].astype(int)


def looking_at(session, thing, far_m=14.0):
    """Return a camera that stands so far from a thing, at its height, and looks at it."""
    box, at = thing.bounding_box, thing.transform
    eye = at.transform(carla.Location(y=-(box.extent.y + far_m)))
    eye.z = at.location.z
    camera = session.camera(None, 160, 120)
    camera.sensor.set_transform(carla.Transform(eye, carla.Rotation(yaw=at.rotation.yaw + 90.0)))
    session.world.tick()
    return camera


def differs(one, other):
    return float((np.abs(one - other).sum(axis=2) > 20).mean())


def labels_through(world, house):
    """Return what a ray meets inside an object's box, and whether the ground below still has its label."""
    top = house.transform.location + carla.Location(z=house.bounding_box.extent.z + 5.0)
    bottom = house.transform.location - carla.Location(z=house.bounding_box.extent.z + 5.0)
    *met, ground = (point.label for point in world.cast_ray(top, bottom))
    return set(met), ground not in (carla.CityObjectLabel.Buildings, carla.CityObjectLabel.NONE)


def test_an_object_can_be_switched_off_and_on(session):
    world = session.world
    house = max(world.get_environment_objects(BUILDINGS), key=lambda one: one.bounding_box.extent.z)
    camera = looking_at(session, house)
    there = pixels(camera, session)
    world.enable_environment_objects([house.id], False)
    gone = pixels(camera, session)
    assert differs(there, gone) > 0.1
    assert house.id in {one.id for one in world.get_environment_objects(BUILDINGS)}  # as CARLA, which lists it still
    assert len(world.get_level_bbs(BUILDINGS)) == len(world.get_environment_objects(BUILDINGS)) - 1
    assert labels_through(world, house) == (set(), True)
    place = carla.Transform(house.transform.location, house.transform.rotation)
    place.location.z = house.transform.location.z - house.bounding_box.extent.z + 0.5
    session.actors.append(world.spawn_actor(session.blueprint("vehicle.tesla.model3"), place))
    world.tick()
    session.actors.pop().destroy()
    world.enable_environment_objects({house.id}, True)
    assert labels_through(world, house) == ({carla.CityObjectLabel.Buildings}, True)
    assert differs(there, pixels(camera, session)) < 0.01
    assert world.try_spawn_actor(session.blueprint("vehicle.tesla.model3"), place) is None


def kinds(session):
    return {one.type for one in session.world.get_environment_objects(ANY)}


def test_layers_can_be_unloaded_and_loaded(session):
    whole = kinds(session)
    assert {BUILDINGS, carla.CityObjectLabel.Vegetation, carla.CityObjectLabel.Poles} <= whole
    lamps = len(session.world.get_lightmanager().get_all_lights())
    session.world.unload_map_layer(carla.MapLayer.Buildings)
    session.world.unload_map_layer(carla.MapLayer.StreetLights)
    assert BUILDINGS not in kinds(session)
    assert not session.world.get_level_bbs(BUILDINGS)
    session.world = session.client.reload_world(False)
    assert kinds(session) == whole
    assert len(session.world.get_lightmanager().get_all_lights()) == lamps > 0


def test_a_map_is_loaded_with_the_layers_that_are_asked_for(session):
    session.world = session.client.load_world("Lite01", False, carla.MapLayer.Foliage)
    assert carla.CityObjectLabel.Vegetation in kinds(session)
    assert BUILDINGS not in kinds(session)
    session.world.load_map_layer(carla.MapLayer.Buildings)
    assert BUILDINGS in kinds(session)


def test_level_boxes_have_the_actors_among_them(session):
    before = len(session.world.get_level_bbs(ANY))
    car = session.car()
    session.ticks(20)
    (box,) = session.world.get_level_bbs(carla.CityObjectLabel.Car)
    assert box.extent == car.bounding_box.extent
    assert box.location.distance(car.get_transform().transform(car.bounding_box.location)) < 0.01
    assert math.remainder(box.rotation.yaw - car.get_transform().rotation.yaw, 360.0) == pytest.approx(0.0, abs=0.1)
    assert len(session.world.get_level_bbs(ANY)) == before + 1
    assert not session.world.get_level_bbs(carla.CityObjectLabel.Bus)


def lights_seen_by_another(server):
    """Return the states by id that a client reads which connects now: it sees only then what others change."""
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(60.0)
    world = client.get_world()  # without it the lights end the process
    return {light.id: light.light_state for light in world.get_lightmanager().get_all_lights()}


def test_street_lights_keep_what_a_client_sets(session, module_server):
    manager = session.world.get_lightmanager()
    lights = manager.get_all_lights()
    assert lights
    assert not manager.get_turned_on_lights(carla.LightGroup.NONE)  # it is noon
    manager.turn_on(lights[:3])
    manager.set_intensity(lights[:1], 55.0)
    manager.set_color(lights[:1], carla.Color(10, 20, 30))
    manager.set_light_group(lights[:1], carla.LightGroup.Building)
    session.ticks(2)
    seen = lights_seen_by_another(module_server)
    assert {number for number, light in seen.items() if light.active} == {light.id for light in lights[:3]}
    changed = seen[lights[0].id]
    assert (changed.intensity, changed.color.r, changed.color.g, changed.color.b) == (55.0, 10, 20, 30)
    assert changed.group == carla.LightGroup.Building


def test_dusk_switches_the_lights_and_one_turned_off_is_dark(session, module_server):
    # A copy, not a changed preset: the client keeps one object of each for the whole process.
    session.world.set_weather(carla.WeatherParameters(sun_altitude_angle=-60.0))
    session.ticks(2)
    assert all(light.active for light in lights_seen_by_another(module_server).values())
    manager = session.world.get_lightmanager()
    lights = manager.get_all_lights()
    above = lights[0].location + carla.Location(z=12.0)
    camera = session.camera(None, 120, 120)
    camera.sensor.set_transform(carla.Transform(above, carla.Rotation(pitch=-89.0)))
    session.world.tick()
    lit = pixels(camera, session)
    manager.turn_off(lights[:1])
    session.ticks(2)
    assert pixels(camera, session).mean() < 0.9 * lit.mean()


def test_a_texture_gives_an_object_its_mean_colour(session):
    world = session.world
    house = max(world.get_environment_objects(BUILDINGS), key=lambda one: one.bounding_box.extent.z)
    assert house.name in world.get_names_of_all_objects()
    camera = looking_at(session, house)
    before = pixels(camera, session)
    red = carla.TextureColor(2, 2)
    for x in range(2):
        for y in range(2):
            red.set(x, y, carla.Color(250, 0, 0, 255))
    world.apply_color_texture_to_object(house.name, carla.MaterialParameter.Diffuse, red)
    painted = pixels(camera, session) - before
    assert (painted[..., 1] < -20).mean() > 0.05
    with pytest.raises(RuntimeError, match="unable to find Actor to apply the texture"):
        world.apply_color_texture_to_object("nothing", carla.MaterialParameter.Diffuse, red)


def test_the_sign_of_a_landmark_is_found(session):
    session.world = session.client.load_world("Lite02")
    lights = [one for one in session.world.get_map().get_all_landmarks() if one.type == "1000001"]
    assert lights
    for landmark in lights[:4]:
        light = session.world.get_traffic_light(landmark)
        assert light.get_opendrive_id() == landmark.id
        assert session.world.get_traffic_light_from_opendrive_id(landmark.id).id == light.id


def test_an_actor_has_components_and_perhaps_bones(session):
    car = session.car()
    session.ticks(20)
    assert car.get_component_names()[0] == "RootComponent"
    root = car.get_component_world_transform("RootComponent")
    assert root.location.distance(car.get_location()) < 0.01
    with pytest.raises(RuntimeError, match="Component could not be found in this actor"):
        car.get_component_world_transform("Nothing")
    names, world_places = car.get_bone_names(), car.get_bone_world_transforms()
    wheels = car.get_physics_control().wheels
    for index, wheel in enumerate(wheels, names.index("Wheel_Front_Left")):
        assert (world_places[index].location - wheel.position / 100.0).length() < 0.02
    assert len(names) == len(world_places) == len(car.get_bone_relative_transforms()) == len(car.get_socket_names())
    with pytest.raises(RuntimeError, match="has no bones"):
        session.world.get_spectator().get_bone_names()


def test_a_walkers_bones_are_those_of_its_skeleton(session):
    where = session.world.get_random_location_from_navigation()
    walker = session.world.spawn_actor(session.blueprint("walker.pedestrian.0015"), carla.Transform(where))
    session.actors.append(walker)
    session.ticks(10)
    told = {bone.name: bone.world.location for bone in walker.get_bones().bone_transforms}
    names, places = walker.get_bone_names(), walker.get_bone_world_transforms()
    assert set(names) == set(told)
    for name, place in zip(names, places, strict=True):
        assert place.location.distance(told[name]) < 0.01


def test_what_hangs_on_a_bone_is_where_it_is(session):
    car = session.car()
    session.ticks(20)
    blueprint, rigid = session.blueprint("sensor.other.gnss"), carla.AttachmentType.Rigid
    sensor = session.world.spawn_actor(blueprint, carla.Transform(), car, rigid, "Wheel_Rear_Right")
    session.actors.append(sensor)
    session.world.tick()
    wheel = car.get_bone_world_transforms()[car.get_bone_names().index("Wheel_Rear_Right")]
    assert sensor.get_location().distance(wheel.location) < 0.01
    with pytest.raises(RuntimeError, match="has no bone nothing"):
        session.world.spawn_actor(blueprint, carla.Transform(), car, rigid, "nothing")


def test_drawn_shapes_and_strings_are_cleared(session):
    car = session.car()
    camera = session.camera(car)
    session.ticks(30)
    clear = pixels(camera, session)
    ahead = car.get_transform().transform(carla.Location(x=8.0, z=1.0))
    box = carla.BoundingBox(ahead, carla.Vector3D(1.0, 1.0, 1.0))
    session.world.debug.draw_box(box, carla.Rotation(), 0.2, carla.Color(255, 0, 0), 0.0)
    assert differs(clear, pixels(camera, session)) > 0.01
    session.world.debug.clear_debug_shape()
    assert differs(clear, pixels(camera, session)) == 0.0


def test_gravity_as_inertial_sensors_feel_it_can_be_set(session):
    assert session.world.get_imui_sensor_gravity() == pytest.approx(9.81)
    car, felt = session.car(), []
    session.sensor("sensor.other.imu", car, lambda reading: felt.append(reading.accelerometer.z))
    session.ticks(30)
    session.world.set_imui_sensor_gravity(1.62)
    session.ticks(5)
    session.close()
    assert felt[-1] == pytest.approx(1.62, abs=0.1)
