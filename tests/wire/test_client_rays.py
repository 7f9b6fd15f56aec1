"""The real client against a real server: what a ray meets."""

from __future__ import annotations

import carla
import pytest

from tests.unit.carla_lite.places import bridge

pytestmark = pytest.mark.any_simulator


def test_the_ground_is_found_below_and_labelled_as_road(session):
    where = session.world.get_map().get_spawn_points()[0].location
    surface = session.world.get_map().get_waypoint(where).transform.location.z
    found = session.world.ground_projection(where + carla.Location(z=5.0), 20.0)
    assert found.location.z == pytest.approx(surface, abs=0.1)
    assert found.label == carla.CityObjectLabel.Roads
    assert session.world.ground_projection(where + carla.Location(z=30.0), 20.0) is None


def test_a_slanting_ray_comes_down_as_far_ahead_as_it_is_high(session):
    where = session.world.get_map().get_spawn_points()[0]
    eye = where.location + carla.Location(z=3.0)
    way = where.get_forward_vector() + carla.Vector3D(z=-1.0)
    found = session.world.project_point(eye, way, 20.0)
    high = eye.z - found.location.z
    assert found.location.distance(carla.Location(eye.x, eye.y, found.location.z)) == pytest.approx(high, abs=0.1)


def test_a_ray_without_a_way_meets_nothing(session):
    eye = session.world.get_map().get_spawn_points()[0].location + carla.Location(z=3.0)
    assert session.world.cast_ray(eye, eye) == []
    assert session.world.project_point(eye, carla.Vector3D(), 20.0) is None
    assert session.world.project_point(eye, carla.Vector3D(z=-1.0), -5.0) is None


def test_a_ray_along_the_road_meets_both_cars(session):
    first, second = session.car(ahead_m=15.0), session.car(ahead_m=30.0, name="vehicle.audi.tt")
    session.world.tick()
    where = session.world.get_map().get_spawn_points()[0]
    eye = where.location + carla.Location(z=0.5)
    ahead = where.get_forward_vector()
    nearest = session.world.project_point(eye, ahead, 40.0)
    assert nearest.label == carla.CityObjectLabel.Car
    assert nearest.location.distance(first.get_location()) == pytest.approx(first.bounding_box.extent.x, abs=0.6)
    met = session.world.cast_ray(eye, eye + carla.Location(ahead * 40.0))
    cars = [one for one in met if one.label == carla.CityObjectLabel.Car]
    assert cars[-1].location.distance(second.get_location()) < second.bounding_box.extent.x + 0.6
    assert cars[0].location.distance(eye) < cars[-1].location.distance(eye)


def test_a_ray_meets_a_bridge_and_the_road_under_it(session):
    world = session.client.generate_opendrive_world(bridge().xodr)
    met = world.cast_ray(carla.Location(52.0, -18.0, 20.0), carla.Location(52.0, -18.0, -5.0))
    assert [one.location.z for one in met] == pytest.approx([6.4, 0.0], abs=0.1)
    under = world.ground_projection(carla.Location(52.0, -18.0, 3.0), 10.0)
    assert under.location.z == pytest.approx(0.0, abs=0.01)
