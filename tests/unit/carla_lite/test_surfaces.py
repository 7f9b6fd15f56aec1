"""Depths, labels and numbers of pixels against the pinhole, the things themselves, and the colours beside them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_lite.blueprints.props import PROPS, PropBlueprint
from carla_lite.blueprints.walkers import WALKERS, WalkerBlueprint
from carla_lite.motion.physics import MODEL3
from carla_lite.roads import network as roads
from carla_lite.roads.network import RoadNetwork
from carla_lite.scenery.camera import BoxActor, Camera, Drawn, Look, Pose
from carla_lite.scenery.paint import TAG_LINE, TAG_ROAD, TAG_SIDEWALK, TAG_TERRAIN
from carla_lite.scenery.people import People, Person, flat_colours
from carla_lite.scenery.projection import View
from carla_lite.scenery.prop_meshes import Thing
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.skeleton import PHASES
from carla_lite.scenery.statics import TAG_BUILDING, TAG_POLE, TAG_VEGETATION, StaticBox
from carla_lite.scenery.surfaces import FARTHEST_M, Before, Surfaces
from carla_lite.scenery.vehicle_meshes import Shape
from tests.unit.carla_lite.places import ground_of, scene

EYE = Pose(0.0, 0.0, 1.8)
SKY = 11
SIZE = 256, 144


def car(x: float, y: float = 0.0, yaw: float = 0.0, shape: Shape = Shape.SALOON, tag: int = 14) -> BoxActor:
    return BoxActor(Pose(x, y, MODEL3.box_centre_z_m, yaw=yaw), MODEL3.extent, (30, 30, 220), tag, shape, actor=7)


def building(x: float, y: float, half: float, yaw: float = 0.0) -> StaticBox:
    return StaticBox(x, y, 5.0, half, half, 5.0, yaw, (100, 150, 200), TAG_BUILDING)


def post(x: float, y: float, tag: int = TAG_POLE) -> StaticBox:
    return StaticBox(x, y, 3.0, 0.15, 0.15, 3.0, 0.0, (90, 90, 90), tag)


def person(x: float) -> Person:
    looks = next(one for one in WALKERS if isinstance(one, WalkerBlueprint)).look(False)
    return Person(Pose(x, 0.0, 0.93), (0.19, 0.19, 0.93), looks, None, actor=9)


def distant(*x: float) -> People:
    """Return people who stand at these places; their ids count from 10."""
    places, turns = np.zeros((3, len(x))), np.zeros((3, len(x)))
    places[0], places[2], turns[1] = x, 0.93, 0.3
    ids, phases = np.arange(len(x)) + 10, np.full(len(x), PHASES)
    colours = np.tile(flat_colours(person(0.0).look), (len(x), 1, 1))
    return People(ids, places, turns, np.full(len(x), 0.93), phases, colours)


def cone(x: float) -> Thing:
    row = next(row for row in PROPS if row.id == "static.prop.trafficcone01")
    assert isinstance(row, PropBlueprint)
    half = 0.5 * row.size_m[0], 0.5 * row.size_m[1], 0.5 * row.size_m[2]
    return Thing(Pose(x, 0.0, half[2]), half, row.colour, row.shape, actor=11)


def looked(world: Scene, pose: Pose = EYE, *actors: Drawn, size: tuple[int, int] = SIZE, fov_deg: float = 90.0) -> Look:
    camera = Camera(*size, fov_deg)
    return camera.look(world, View(pose, camera.lens), actors)


def tags(look: Look) -> np.ndarray:
    image = Surfaces(look).tags()
    assert (image[..., :2] == 0).all()
    assert (image[..., 3] == 255).all()
    red: np.ndarray = image[..., 2]
    return red


def places(look: Look) -> np.ndarray:
    """Return (height, width, 3) where in the world each pixel's point is, by its depth."""
    view, lens = look.view, look.view.lens
    v, u = np.mgrid[: lens.height, : lens.width].astype(float)
    rays = np.stack([u, v, np.ones_like(u)], axis=2) @ np.linalg.inv(view.matrix).T
    where: np.ndarray = view.position + rays * Surfaces(look).metres[..., None].astype(float)
    return where


@pytest.mark.parametrize("fov_deg", [60.0, 100.0])
@pytest.mark.parametrize("turn", [(0.0, 0.0), (-0.3, 0.0), (0.1, 0.4), (-0.2, -2.9), (-0.1, math.pi)])
def test_the_ground_is_where_its_depth_says_and_the_sky_endless(turn: tuple[float, float], fov_deg: float):
    look = looked(scene(), Pose(3.0, -2.0, 1.8, turn[0], 0.7, turn[1]), fov_deg=fov_deg)
    seen = tags(look)
    ground = seen == TAG_TERRAIN
    assert set(np.unique(seen)) == {TAG_TERRAIN, SKY}
    assert (Surfaces(look).metres[~ground] == FARTHEST_M).all()
    where = places(look)
    near = np.linalg.norm(where - look.view.position, axis=2) < 100.0
    assert near.any()
    assert np.abs(where[ground & near][:, 2]).max() < 0.01
    # Rays that point down meet ground, unless it is too far.
    rays = where - look.view.position
    assert (rays[ground][:, 2] < 0.0).all()


@pytest.mark.parametrize("roll", [0.0, 0.5, -1.2, 2.5, math.pi])
def test_the_horizon_is_that_of_the_colours(roll: float):
    camera, pose = Camera(*SIZE, 90.0), Pose(0.0, 0.0, 1.8, -0.1, 0.0, roll)
    looks = [camera.look(scene(ground=ground_of(level)), View(pose, camera.lens), []) for level in (0, 250)]
    black, white = (camera.picture(look).astype(int) for look in looks)
    differs = np.abs(black - white).max(axis=2) > 8
    ground, metres = tags(looks[0]) != SKY, Surfaces(looks[0]).metres
    assert not (differs & ~ground).any()
    assert differs[ground & (metres < 40.0)].mean() > 0.99
    assert differs.mean() > 0.2


@pytest.mark.parametrize("yaw", [0.0, 0.4, -1.0])
def test_a_wall_has_the_depth_of_its_plane(yaw: float):
    box = building(25.0, 3.0, 6.0, yaw)
    look = looked(scene(box))
    wall = tags(look) == TAG_BUILDING
    assert wall.sum() > 300
    away = places(look)[wall] - box.centre
    along = np.abs(away[:, 0] * box.cos + away[:, 1] * box.sin)
    across = np.abs(away[:, 1] * box.cos - away[:, 0] * box.sin)
    assert np.minimum(np.abs(along - 6.0), np.abs(across - 6.0)).max() < 0.3
    assert np.median(np.minimum(np.abs(along - 6.0), np.abs(across - 6.0))) < 0.01


def test_a_car_ahead_is_as_far_as_its_rear():
    look = looked(scene(), EYE, car(10.0 + MODEL3.half_length_m))
    seen = tags(look) == 14
    metres = Surfaces(look).metres
    assert metres[seen].min() == pytest.approx(10.0, abs=0.1)
    assert metres[seen].max() < 10.0 + 2.0 * MODEL3.half_length_m


THINGS: dict[str, tuple[Drawn | StaticBox, set[int]]] = {
    "car": (car(12.0, 1.0, 0.3), {14}),
    "truck": (car(12.0, 1.0, 0.3, Shape.TRUCK, 15), {15}),
    "bus": (car(12.0, 1.0, 0.3, Shape.BUS, 16), {16}),
    "motorcycle": (car(12.0, 1.0, 0.3, Shape.MOTORCYCLE, 18), {18, 13}),
    "bicycle": (car(12.0, 1.0, 0.3, Shape.BICYCLE, 19), {19, 13}),
    "person": (person(9.0), {12}),
    "person far away": (person(40.0), {12}),
    "prop": (cone(6.0), {21}),
    "building": (building(30.0, 3.0, 6.0, 0.4), {TAG_BUILDING}),
    "pole": (post(12.0, 2.0), {TAG_POLE}),
    "trunk": (post(12.0, 2.0, TAG_VEGETATION), {TAG_VEGETATION}),
}


@pytest.mark.parametrize("name", THINGS)
def test_silhouettes_are_those_of_the_colours(name: str):
    thing, labels = THINGS[name]
    with_it, actors = (scene(thing), []) if isinstance(thing, StaticBox) else (scene(), [thing])
    camera = Camera(*SIZE, 90.0)
    look = camera.look(with_it, View(EYE, camera.lens), actors)
    seen = tags(look)
    shown = np.isin(seen, list(labels))
    assert set(np.unique(seen)) == {TAG_TERRAIN, SKY} | labels
    without = camera.render(scene(), EYE, [])
    changed = (camera.picture(look) != without).any(axis=2)
    assert (shown & ~changed).sum() <= 0.01 * shown.sum()  # a colour may happen to be that behind
    beside = places(look)[changed & ~shown]
    if isinstance(thing, StaticBox):
        assert not len(beside)
    else:  # its shadow
        assert np.abs(beside[:, 2]).max(initial=0.0) < 0.01
        assert np.hypot(beside[:, 0] - thing.pose.x, beside[:, 1] - thing.pose.y).max(initial=0.0) < 3.0


def test_a_smooth_picture_has_its_silhouettes_within_a_pixel():
    camera = Camera(640, 360, 90.0)
    look = camera.look(scene(), View(EYE, camera.lens), [car(9.0, 1.5, 0.5)])
    shown = tags(look) == 14
    changed = np.abs(camera.picture(look).astype(int) - camera.render(scene(), EYE, [])).max(axis=2) > 8
    grown = np.zeros_like(shown)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            grown |= np.roll(shown, (dy, dx), (0, 1))
    beside = places(look)[changed & ~grown]
    assert np.abs(beside[:, 2]).max() < 0.01, "its shadow"
    assert np.hypot(beside[:, 0] - 9.0, beside[:, 1] - 1.5).max() < 3.0


def test_numbers_tell_things_apart():
    boxes = building(30.0, -9.0, 4.0), building(30.0, 9.0, 4.0)
    look = looked(scene(*boxes), EYE, car(12.0), person(7.0))
    image = Surfaces(look).instances().astype(int)
    numbers = image[..., 1] + 256 * image[..., 0]
    assert (image[..., 2] == tags(look)).all()
    for label, expected in ((14, {7}), (12, {9}), (TAG_BUILDING, {65535, 65534}), (TAG_TERRAIN, {0}), (SKY, {0})):
        assert set(np.unique(numbers[image[..., 2] == label])) == expected


def test_people_far_away_have_number_label_depth_and_pose():
    camera = Camera(*SIZE, 90.0)
    look = camera.look(scene(), View(EYE, camera.lens), [car(12.0, 4.0)], people=distant(40.0, -20.0))
    image, metres = Surfaces(look).instances().astype(int), Surfaces(look).metres
    shown = image[..., 2] == 12
    assert shown.any()
    assert set(np.unique((image[..., 1] + 256 * image[..., 0])[shown])) == {10}
    assert np.allclose(metres[shown], 40.0 - EYE.x, atol=0.1)
    assert look.moving.poses().keys() == {7, 10, 11}
    assert look.moving.poses()[10] == Pose(40.0, 0.0, 0.93, 0.0, 0.3, 0.0)


def test_normals_face_the_camera_and_are_those_of_the_walls():
    look = looked(scene(building(25.0, 0.0, 6.0, 0.3)))
    normals, seen = Surfaces(look).normals(), tags(look)
    assert (normals[seen == SKY] == 0.0).all()
    assert np.allclose(normals[seen == TAG_TERRAIN], (0.0, 0.0, 1.0))
    walls = normals[seen == TAG_BUILDING]
    assert np.allclose(walls[np.abs(walls[:, 0]) > 0.9], (-math.cos(0.3), -math.sin(0.3), 0.0), atol=1e-6)
    rays = (places(look) - look.view.position)[seen == TAG_BUILDING]
    assert ((walls * rays).sum(axis=1) < 0.0).all()


@pytest.fixture(scope="module")
def town() -> tuple[RoadNetwork, Scene]:
    network = roads.load("Lite01")
    return network, Scene.build(network, 0)


def test_a_street_has_road_lines_and_sidewalks_where_the_lanes_are(town):
    network, world = town
    found = set()
    for spot in network.spawn_points()[::30]:
        look = looked(world, Pose(spot.x, spot.y, 1.8, -0.25, spot.yaw))
        seen, where = tags(look), places(look)
        below = seen[-6:, 100:156]
        assert np.isin(below, [TAG_ROAD, TAG_LINE]).all()
        found |= set(np.unique(seen).tolist())
        walked = where[(seen == TAG_SIDEWALK) & (Surfaces(look).metres < 15.0)][::37, :2]
        lanes = np.concatenate([lane.centre[:, :2] for lane in network.lanes if lane.kind == "sidewalk"])
        widest = max(float(lane.width_m.max()) for lane in network.lanes if lane.kind == "sidewalk")
        for place in walked:
            assert np.hypot(*(lanes - place).T).min() < 0.5 * widest + 1.0
    assert {TAG_ROAD, TAG_SIDEWALK, TAG_TERRAIN, TAG_LINE, TAG_BUILDING, TAG_POLE, TAG_VEGETATION, SKY} <= found


def test_depth_and_labels_need_no_colours_of_the_ground(town):
    network, world = town
    spot = network.spawn_points()[0]
    unpainted = replace(world, paint=lambda: pytest.fail("the ground's colours were painted"))
    one, other = (Surfaces(looked(each, Pose(spot.x, spot.y, 1.8, -0.25, spot.yaw))) for each in (unpainted, world))
    assert (one.tags() == other.tags()).all()
    assert (one.normals() == other.normals()).all()
    assert (one.metres == other.metres).all()


def test_what_stands_in_a_town_has_the_depth_of_its_own_box(town):
    network, world = town
    boxes = world.statics.boxes
    checked = wrong = 0
    for spot in network.spawn_points()[::11]:
        look = looked(world, Pose(spot.x, spot.y, 1.8, 0.05, spot.yaw + 0.4))
        image, where = Surfaces(look).instances().astype(int), places(look)
        numbers = image[..., 1] + 256 * image[..., 0]
        for number in np.unique(numbers[image[..., 2] == TAG_BUILDING]):
            box = boxes[65535 - number]
            assert box.tag == TAG_BUILDING
            away = where[numbers == number] - box.centre
            along = np.abs(away[:, 0] * box.cos + away[:, 1] * box.sin) - box.half_length_m
            across = np.abs(away[:, 1] * box.cos - away[:, 0] * box.sin) - box.half_width_m
            up = np.abs(away[:, 2]) - box.half_height_m
            off = np.abs(np.maximum(np.maximum(along, across), up))
            checked, wrong = checked + len(off), wrong + int((off > 0.5).sum())
    assert checked > 20_000
    assert wrong < 0.01 * checked


@settings(max_examples=40)
@given(
    place=st.tuples(st.floats(-500, 900), st.floats(-500, 900), st.floats(-5, 300)),
    turn=st.tuples(st.floats(-1.57, 1.57), st.floats(-3.2, 3.2), st.floats(-3.2, 3.2)),
    size=st.sampled_from([(84, 84), (160, 90), (33, 71)]),
    fov_deg=st.floats(15, 150),
)
def test_any_pose_gives_depths_and_labels(town, place, turn, size, fov_deg):
    _, world = town
    near = car(place[0] + 0.5, place[1])
    look = looked(world, Pose(*place, *turn), near, person(place[0] + 1.0), size=size, fov_deg=fov_deg)
    seen, metres = tags(look), Surfaces(look).metres
    assert seen.shape == metres.shape == (size[1], size[0])
    assert np.isfinite(metres).all()
    assert metres.min() > 0.19
    assert metres.max() <= FARTHEST_M
    assert ((metres == FARTHEST_M) == (seen == SKY)).all()
    assert seen.min() > 0


def flow(now: Look, was: Look, poses: dict[int, Pose]) -> np.ndarray:
    return Surfaces(now).flow(Before(was.view, poses))


def test_the_flow_of_a_still_world_is_that_of_the_camera():
    world = scene(building(25.0, 0.0, 6.0))
    was, now = (looked(world, Pose(x, 0.1 * x, 1.8, -0.1, 0.02 * x)) for x in (0.0, 1.0))
    lens, points = now.view.lens, places(now)
    then = was.view.project(points)
    u, v = then[..., 0] / then[..., 2], then[..., 1] / then[..., 2]
    rows, columns = np.mgrid[: lens.height, : lens.width]
    expected = np.stack([(columns - u) * 2 / lens.width, (v - rows) * 2 / lens.height], axis=2)
    near = Surfaces(now).metres < 500.0
    assert np.abs(flow(now, was, {}) - np.clip(expected, -2, 2))[near].max() < 1e-3
    turned = looked(scene(), Pose(0.0, 0.0, 1.8, 0.0, 0.1))
    assert tags(turned)[10, 128] == SKY
    assert flow(turned, looked(scene()), {})[10, 128, 0] == pytest.approx(-math.tan(0.1), abs=0.003)


def test_the_flow_of_a_car_is_how_it_has_moved():
    was, now = (looked(scene(), EYE, car(12.0, y)) for y in (0.0, 0.5))
    moved = flow(now, was, {7: car(12.0, 0.0).pose})
    seen = tags(now) == 14
    focal = now.view.lens.focal
    expected = 2.0 / SIZE[0] * focal * 0.5 / Surfaces(now).metres[seen]
    assert np.abs(moved[seen][:, 0] - expected).max() < 1e-4
    assert np.abs(moved[~seen]).max() < 1e-5
    assert (flow(now, was, {}) == flow(now, now, {7: car(12.0, 0.5).pose})).all()
