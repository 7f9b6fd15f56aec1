"""The effect of weather on light and air, which pictures of ClearNoon don't show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from carla_lite.roads import network as roads
from carla_lite.scenery.camera import BoxActor, Camera, Conditions, Pose
from carla_lite.scenery.daylight import CLEAR_NOON, NOON, Daylight
from carla_lite.scenery.drawings import Drawing, arrow, box, line
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.vehicle_meshes import Lights, Shape

FIELDS = (
    *("cloud", "rain", "puddles", "wind", "azimuth", "altitude", "fog", "fog_m", "falloff", "wetness"),
    *("scattering", "mie", "rayleigh", "dust"),
)


def weather(**changes: float) -> Daylight:
    return Daylight.of([changes.get(name, value) for name, value in zip(FIELDS, CLEAR_NOON, strict=True)])


def bright(daylight: Daylight) -> float:
    return float(daylight.level.mean())


def test_clear_noon_in_single_precision_is_noon():
    assert Daylight.of(np.array(CLEAR_NOON, np.float32).tolist()) is NOON
    assert NOON.level.tolist() == [1.0, 1.0, 1.0]
    assert NOON.unlit.tolist() == [1.0, 1.0, 1.0]


def test_weathers_that_look_the_same_are_one_object():
    assert weather(altitude=20.0) is weather(altitude=20.2)
    assert weather(altitude=20.0) is not weather(altitude=24.0)
    assert weather(mie=1.0) is NOON


def test_a_lower_sun_is_darker_and_lamps_come_on():
    levels = [bright(weather(altitude=altitude)) for altitude in (90, 45, 30, 15, 5, 0, -5, -20)]
    assert levels[1:] == sorted(levels[1:], reverse=True)
    assert levels[-1] < 0.3
    assert [weather(altitude=altitude).lamps for altitude in (15, 8, 0, -8, -90)] == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_sunset_is_warmer_and_lower_than_noon():
    sunset = weather(altitude=15.0)
    assert sunset.diffuse[2] > 1.5 * sunset.diffuse[0]
    assert sunset.haze[2] > sunset.haze[0]
    assert sunset.sun[2] == pytest.approx(np.sin(np.radians(15.0)))


def test_the_azimuth_turns_the_sun_clockwise_as_seen_from_above():
    east, south = weather(azimuth=0.0).sun, weather(azimuth=90.0).sun
    assert np.cross(east, south)[2] > 0.0  # y is to the right of x
    assert weather(azimuth=360.0 + CLEAR_NOON[4]).sun == pytest.approx(NOON.sun, abs=0.05)


@pytest.mark.parametrize("change", [{"fog": 60.0}, {"rain": 90.0}, {"dust": 80.0}])
def test_fog_rain_and_dust_take_the_far_away(change: dict[str, float]):
    far = np.array([150.0])
    assert weather(**change).haze_shares(far) > NOON.haze_shares(far) + 0.1


def test_fog_begins_at_its_distance():
    assert weather(fog=60.0, fog_m=75.0).haze_share(70.0) == 0.0
    assert weather(fog=60.0, fog_m=75.0).haze_share(120.0) > 0.2


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene.build(roads.load("Lite01"), 0)


@pytest.fixture
def eye() -> Pose:
    spot = roads.load("Lite01").spawn_points()[0]
    return Pose(spot.x, spot.y, spot.z + 1.8, -0.15, spot.yaw)


def test_without_its_sun_the_ground_has_no_shadow_left(scene: Scene):
    shadow, ground = scene.light(weather(cloud=100.0)).shadow.levels[0], scene.ground.levels[0]
    edge = np.argwhere((shadow[:, :-1] == 0) & (shadow[:, 1:] == 255))[::997]
    assert len(edge) > 20
    ratios = [
        ground[row, column + 1 : column + 4].astype(float).mean() / ground[row, column - 3 : column].mean()
        for row, column in edge
    ]
    # What the shadow took is what the light gives back: 1 / 0.62.
    assert np.median(ratios) == pytest.approx(0.62, abs=0.05)
    assert scene.light(weather(cloud=100.0)).light is None


def test_earlier_weathers_leave_no_trace_at_noon(scene: Scene, eye: Pose):
    used, fresh = Camera(84, 84, 100.0), Camera(84, 84, 100.0)
    for altitude in (45, 15, -30):
        used.render(scene, eye, [], Conditions(weather(altitude=altitude, rain=80.0, puddles=70.0)))
    assert (used.render(scene, eye, []) == fresh.render(scene, eye, [])).all()


@pytest.mark.parametrize("size", [(84, 84), (640, 360)])
def test_rain_is_that_of_the_pictures_number(scene: Scene, eye: Pose, size: tuple[int, int]):
    storm = Conditions(weather(rain=100.0, cloud=100.0))
    runs = [
        [camera.render(scene, eye, [], storm) for _ in range(3)]
        for camera in (Camera(*size, 90.0), Camera(*size, 90.0))
    ]
    assert all((one == other).all() for one, other in zip(*runs, strict=True))
    assert (runs[0][0] != runs[0][1]).any()


@pytest.mark.parametrize("away_m", [9.0, 25.0])  # the farther one is drawn with fewer parts
@pytest.mark.parametrize("shape", list(Shape))
def test_brake_lights_are_seen_on_every_shape(scene: Scene, eye: Pose, shape: Shape, away_m: float):
    x, y = eye.x + away_m * np.cos(eye.yaw), eye.y + away_m * np.sin(eye.yaw)
    car = BoxActor(Pose(x, y, eye.z - 1.05, 0.0, eye.yaw), (2.4, 1.0, 0.75), (60, 60, 60), 14, shape)
    braking = dataclasses.replace(car, lights=int(Lights.BRAKE))
    off, on = (Camera(84, 84, 90.0).render(scene, eye, [actor]) for actor in (car, braking))
    assert (off != on).any()


def test_shapes_are_cut_into_pieces_that_join():
    pieces = line((0.0, 0.0, 0.0), (10.0, 0.0, 0.0))
    assert (pieces[1:, 0] == pieces[:-1, 1]).all()
    assert pieces[-1, 1].tolist() == [10.0, 0.0, 0.0]
    assert len(line((0.0, 0.0, 0.0), (5000.0, 0.0, 0.0))) == 64
    tips = arrow((0.0, 0.0, 0.0), (0.0, 4.0, 0.0), 0.5)[2:]
    assert (tips[:, 1] == (0.0, 4.0, 0.0)).all()
    assert tips[:, 0, 1] == pytest.approx(3.5)
    corners = np.unique(box((1.0, 2.0, 3.0), (1.0, 0.5, 0.25), (0.0, np.pi / 2, 0.0)).reshape(-1, 3).round(6), axis=0)
    assert corners.min(axis=0) == pytest.approx([0.5, 1.0, 2.75])
    assert corners.max(axis=0) == pytest.approx([1.5, 3.0, 3.25])


def test_a_line_through_the_eye_is_cut_before_it(scene: Scene, eye: Pose):
    ahead = np.array(eye.axes()[0])
    ends = [tuple((np.array((eye.x, eye.y, eye.z - 0.5)) + along * ahead).tolist()) for along in (-6.0, 6.0)]
    drawn = Conditions(drawings=[Drawing((0, 255, 0), 1.0, line(*ends), 0.1)])
    image = Camera(84, 84, 90.0).render(scene, eye, [], drawn)
    green = (image[..., :3] == (0, 255, 0)).all(axis=2)
    assert green[83].any()
    assert green.any(axis=1).sum() > 20
