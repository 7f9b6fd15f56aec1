"""Pictures against the pinhole: what appears where, what hides what, and that nothing depends on the past."""

from __future__ import annotations

import dataclasses
import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_lite.motion.physics import MODEL3
from carla_lite.roads import network as roads
from carla_lite.roads.network import Marking, RoadNetwork, RoadPaint
from carla_lite.scenery.camera import BoxActor, Camera, Pose
from carla_lite.scenery.paint import paint
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.statics import TAG_BUILDING, StaticBox
from carla_lite.scenery.vehicle_meshes import FAR_PX, FINE_PX, Detail, Lights, Shape, vehicle_mesh
from tests.unit.carla_lite.places import ground_of, scene

EYE = Pose(0.0, 0.0, 1.8)
RED, BLUE = (30, 30, 220), (220, 30, 30)


def lined(y: float) -> Scene:
    """Return a grass plain with one yellow line along x at this y."""
    x = np.arange(-20.0, 81.0)
    line = Marking(np.stack([x, np.full_like(x, y), np.zeros_like(x)], axis=1), "solid", "yellow", 0.2)
    network = RoadNetwork("line", "", (), (-20.0, -20.0, 80.0, 20.0), painted=lambda: RoadPaint((line,)))
    return scene(ground=paint(network, [], 0))


def car(x: float, y: float = 0.0, yaw: float = 0.0, colour: tuple[int, int, int] = RED) -> BoxActor:
    return BoxActor(Pose(x, y, MODEL3.box_centre_z_m, yaw=yaw), MODEL3.extent, colour, 14, Shape.SALOON)


def changed(camera: Camera, world: Scene, pose: Pose, actor: BoxActor) -> tuple[int, int, int, int]:
    """Return the columns and rows (first, last, first, last) that an actor changes."""
    before, after = camera.render(world, pose, []), camera.render(world, pose, [actor])
    rows, columns = np.nonzero(np.abs(before.astype(int) - after).max(axis=2) > 8)
    return int(columns.min()), int(columns.max()), int(rows.min()), int(rows.max())


@pytest.mark.parametrize("size", [(84, 84), (640, 360), (321, 123), (1280, 720)])
def test_image_is_bgra_of_the_asked_size_and_a_new_array(size: tuple[int, int]):
    camera, world = Camera(*size, 90.0), scene()
    first = camera.render(world, EYE, [])
    assert first.shape == (size[1], size[0], 4)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous
    assert (first[..., 3] == 255).all()
    kept = first.copy()
    camera.render(world, dataclasses.replace(EYE, pitch=0.5), [])
    assert (first == kept).all()


@pytest.mark.parametrize("y", [-2.0, 1.0, 3.0])
@pytest.mark.parametrize(("size", "fov_deg"), [((84, 84), 100.0), ((640, 360), 90.0)])
def test_a_line_on_the_road_appears_where_the_pinhole_puts_it(y: float, size: tuple[int, int], fov_deg: float):
    width, height = size
    focal = 0.5 * width / math.tan(math.radians(fov_deg / 2))
    image = Camera(width, height, fov_deg).render(lined(y), EYE, []).astype(int)
    yellow = np.clip(image[..., 2] - image[..., 0] - 60, 0, None)
    checked = 0
    for depth in (3.5, 4.0, 6.0, 9.0):
        row = 0.5 * height + focal * 1.8 / depth
        column = 0.5 * width + focal * y / depth
        if row < height - 1 and 2 < column < width - 2 and yellow[int(row)].any():
            at_row = 1.8 * focal / (int(row) + 0.5 - 0.5 * height)
            expected = 0.5 * width + focal * y / at_row - 0.5
            found = np.average(np.arange(width), weights=yellow[int(row)])
            assert found == pytest.approx(expected, abs=0.8)
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("pitch", [-0.4, -0.2, 0.0, 0.15])
@pytest.mark.parametrize("height", [84, 360])
def test_horizon_is_where_the_pitch_puts_it(pitch: float, height: int):
    camera = Camera(height, height, 90.0)
    image = camera.render(scene(), dataclasses.replace(EYE, pitch=pitch), []).astype(int).mean(axis=2)
    # Black ground under haze meets the sky with a step; below it only gets darker.
    steps = np.flatnonzero(np.diff(image[:, height // 2]) < -8)
    expected = 0.5 * height + 0.5 * height * math.tan(pitch)
    assert steps[0] + 1 == pytest.approx(expected, abs=1.0 + 0.01 * height)


def test_sky_is_above_and_bluer_towards_the_zenith():
    image = Camera(84, 84, 90.0).render(scene(), EYE, []).astype(int)
    blueness = image[..., 0] - image[..., 2]
    assert blueness[0].min() > blueness[38].max() + 30
    assert image[60, :, :3].max() < 60


@pytest.mark.parametrize("size", [(84, 84), (640, 360)])
def test_a_car_ten_metres_ahead_covers_the_pixels_of_its_box(size: tuple[int, int]):
    width, height = size
    focal = 0.5 * width
    left, right, top, bottom = changed(Camera(width, height, 90.0), scene(), EYE, car(10.0 + MODEL3.half_length_m))
    half = focal * MODEL3.half_width_m / 10.0
    assert left == pytest.approx(0.5 * width - half, abs=0.1 * half + 1.5)
    assert right == pytest.approx(0.5 * width + half, abs=0.1 * half + 1.5)
    assert bottom == pytest.approx(0.5 * height + focal * 1.8 / 10.0, abs=2.0)
    roof_depth = 10.0 + MODEL3.half_length_m
    roof = 0.5 * height + focal * (1.8 - 2.0 * MODEL3.half_height_m) / roof_depth
    assert top == pytest.approx(roof, abs=0.01 * height + 1.5)


def test_a_car_twice_as_far_is_half_as_wide():
    camera, world = Camera(640, 360, 90.0), scene()
    near = changed(camera, world, EYE, car(12.0 + MODEL3.half_length_m))
    far = changed(camera, world, EYE, car(24.0 + MODEL3.half_length_m))
    assert (near[1] - near[0]) / (far[1] - far[0]) == pytest.approx(2.0, rel=0.08)


@pytest.mark.parametrize(
    ("move", "shift"),
    [({"y": 2.0}, 42.0 * 2.0 / (15.0 - MODEL3.half_length_m)), ({"yaw": 0.2}, 42.0 * math.tan(0.2))],
    ids=["moving", "turning"],
)
def test_to_the_right_what_is_ahead_shifts_to_the_left(move: dict[str, float], shift: float):
    camera, world = Camera(84, 84, 90.0), scene()
    here = changed(camera, world, EYE, car(15.0))
    there = changed(camera, world, dataclasses.replace(EYE, **move), car(15.0))
    assert here[0] - there[0] == pytest.approx(shift, abs=2.0)


def test_a_near_car_hides_a_far_one_in_either_order():
    camera = Camera(320, 180, 90.0)
    near, far = car(8.0, colour=RED), car(18.0, colour=BLUE)
    alone = camera.render(scene(), EYE, [near])
    both = camera.render(scene(), EYE, [far, near])
    assert (both == camera.render(scene(), EYE, [near, far])).all()
    left, right, _, bottom = changed(camera, scene(), EYE, near)
    middle = np.s_[100 : bottom - 2, left + 3 : right - 3]
    assert (both[middle] == alone[middle]).all()


def building(x: float, y: float, half: float, yaw: float = 0.0) -> StaticBox:
    return StaticBox(x, y, 5.0, half, half, 5.0, yaw, (100, 150, 200), TAG_BUILDING)


@pytest.mark.parametrize("yaw", [0.0, 0.5, -0.3])
def test_a_building_hides_only_the_car_behind_it(yaw: float):
    camera, world = Camera(84, 84, 90.0), scene(building(25.0, 0.0, 6.0, yaw))
    empty = camera.render(world, EYE, [])
    assert (camera.render(world, EYE, [car(40.0)]) == empty).all()
    assert (camera.render(world, EYE, [car(12.0)]) != empty).sum() > 100


def test_a_wall_beside_the_road_does_not_hide_cars_on_it():
    wall = StaticBox(30.0, 8.0, 5.0, 35.0, 4.0, 5.0, 0.0, (100, 150, 200), TAG_BUILDING)
    camera, world = Camera(84, 84, 90.0), scene(wall)
    left, right, top, bottom = changed(camera, world, EYE, car(12.0, 1.0))
    assert right - left >= 7
    assert bottom - top >= 4


def test_building_in_front_covers_the_one_behind():
    camera = Camera(320, 180, 90.0)
    small, large = building(20.0, 0.0, 3.0), building(60.0, 0.0, 12.0)
    image = camera.render(scene(large, small), EYE, [])
    assert (image == camera.render(scene(small, large), EYE, [])).all()
    alone = camera.render(scene(small), EYE, [])
    assert (image[88:98, 155:165] == alone[88:98, 155:165]).all()


def test_a_wall_inside_the_near_plane_fills_its_side():
    wall = StaticBox(0.0, 4.0, 5.0, 30.0, 2.0, 5.0, 0.0, (100, 150, 200), TAG_BUILDING)
    image = Camera(84, 84, 90.0).render(scene(wall), EYE, []).astype(int)
    assert image[38, 70:, 2].min() > image[38, 70:, 0].max()  # its colour, more red than blue


def test_straight_down_shows_what_is_below_in_the_middle():
    above = Pose(5.0, -3.0, 40.0, pitch=-math.pi / 2)
    left, right, top, bottom = changed(Camera(200, 200, 60.0), scene(), above, car(5.0, -3.0))
    assert (left + right) / 2 == pytest.approx(99.5, abs=2.0)
    assert (top + bottom) / 2 == pytest.approx(99.5, abs=2.0)
    assert bottom - top > 1.5 * (right - left)  # nose up in the image


def test_roll_to_the_left_lowers_the_horizon_on_the_right():
    image = Camera(84, 84, 90.0).render(scene(), dataclasses.replace(EYE, roll=-0.2), []).astype(int)
    sky = image[..., :3].mean(axis=2) > 120
    assert sky[:, 5].sum() < sky[:, 78].sum() - 8


def test_shadow_lies_below_the_car():
    camera, world = Camera(320, 180, 90.0), scene(ground=ground_of(160))
    image = camera.render(world, EYE, [car(10.0)]).astype(int)
    _, _, _, bottom = changed(camera, world, EYE, car(10.0))
    assert image[bottom - 1, 160, :3].max() < 90


@pytest.fixture(scope="module")
def town() -> tuple[RoadNetwork, Scene]:
    network = roads.load("Lite01")
    return network, Scene.build(network, 0)


def poses(network: RoadNetwork, count: int) -> list[Pose]:
    spots = network.spawn_points()
    return [Pose(s.x, s.y, 1.8, -0.2, s.yaw) for s in spots[:: max(1, len(spots) // count)]]


def test_pictures_of_a_town_differ_and_use_many_colours(town):
    network, world = town
    camera = Camera(84, 84, 100.0)
    images = [camera.render(world, pose, []) for pose in poses(network, 12)]
    assert len({image.tobytes() for image in images}) == len(images)
    for image in images:
        assert len(np.unique(image.reshape(-1, 4), axis=0)) > 200
        assert cv2.cvtColor(image, cv2.COLOR_BGRA2GRAY).std() > 15


def test_a_picture_depends_on_nothing_rendered_before(town):
    network, world = town
    there = poses(network, 12)
    used = Camera(84, 84, 100.0)
    for pose in there:
        used.render(world, pose, [car(pose.x + 8.0, pose.y)])
    fresh = Camera(84, 84, 100.0)
    untouched = Scene(world.statics, world.height, world.metres_per_pixel, world.paint)
    for pose in there[::-1]:
        assert (used.render(world, pose, []) == fresh.render(untouched, pose, [])).all()


def test_the_street_ahead_of_a_spawned_car_is_asphalt(town):
    network, world = town
    for pose in poses(network, 12):
        image = Camera(84, 84, 100.0).render(world, pose, []).astype(int)
        below = image[70:80, 35:50, :3]
        assert (np.ptp(below, axis=2) < 25).mean() > 0.8
        assert below.mean() < 130


@settings(max_examples=80)
@given(
    place=st.tuples(st.floats(-500, 900), st.floats(-500, 900), st.floats(-5, 300)),
    turn=st.tuples(st.floats(-1.57, 1.57), st.floats(-3.2, 3.2), st.floats(-0.6, 0.6)),
    size=st.sampled_from([(84, 84), (160, 90), (33, 71)]),
    fov_deg=st.floats(15, 150),
)
def test_any_pose_gives_a_picture(town, place, turn, size, fov_deg):
    _, world = town
    image = Camera(size[0], size[1], fov_deg).render(world, Pose(*place, *turn), [car(place[0] + 0.5, place[1])])
    assert image.shape == (size[1], size[0], 4)


@pytest.mark.parametrize("lights", [0, int(Lights.BRAKE)])
@pytest.mark.parametrize("shape", [shape for shape in Shape if shape is not Shape.BICYCLE])
def test_a_vehicle_that_is_small_in_the_image_has_fewer_parts(shape: Shape, lights: int):
    parts = [len(vehicle_mesh(shape, MODEL3.extent, RED, detail, lights).traits) for detail in Detail]
    assert parts[0] <= parts[1] <= parts[2]
    assert parts[0] < parts[2]
    assert [Detail.of(px) for px in (0.0, FAR_PX, FINE_PX)] == list(Detail)
