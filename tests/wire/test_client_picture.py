"""The real client against a real server: weather, vehicles' lights and debug drawing, as cameras see them."""

from __future__ import annotations

import itertools

import carla
import numpy as np
import pytest

from tests.wire.test_client_cameras import pixels

ONE_SERVER = True
FIELDS = [name for name, field in vars(carla.WeatherParameters).items() if isinstance(field, property)]
PRESETS = {
    name: preset
    for name, preset in vars(carla.WeatherParameters).items()
    if isinstance(preset, carla.WeatherParameters) and name != "Default"
}


def parked(session, **options):
    """Return a camera on a car that has come to rest, and the car."""
    car = session.car()
    camera = session.camera(car, **options)
    for _ in range(10):
        camera.at(session.world.tick())
    return camera, car


def view(session, camera):
    return pixels(camera.at(session.world.tick()))[..., :3].astype(int)


def test_a_weather_comes_back_as_it_was_set(session):
    wanted = carla.WeatherParameters(*(3.0 + number for number in range(len(FIELDS))))
    assert len(FIELDS) == 14
    session.world.set_weather(wanted)
    got = session.world.get_weather()
    for name in FIELDS:
        assert getattr(got, name) == pytest.approx(getattr(wanted, name)), name


def test_every_preset_looks_different_and_noon_is_the_same_again(session):
    camera, _ = parked(session)
    noon = view(session, camera)
    seen = {}
    for name, preset in PRESETS.items():
        session.world.set_weather(preset)
        seen[name] = view(session, camera)
    assert len(PRESETS) == 22
    names = list(seen)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert np.abs(seen[one] - seen[other]).mean() > 0.5, (one, other)
    brightness = {name: image.mean() for name, image in seen.items()}
    assert max(brightness[name] for name in names if name.endswith("Night")) < 0.6 * brightness["ClearNoon"]
    assert brightness["HardRainNoon"] < 0.9 * brightness["ClearNoon"]
    red, blue = seen["DustStorm"][..., 2].mean(), seen["DustStorm"][..., 0].mean()
    assert red > 1.3 * blue
    session.world.set_weather(carla.WeatherParameters.ClearNoon)
    assert (view(session, camera) == noon).all()


def test_rain_differs_each_frame_and_nothing_else_does(session):
    camera, _ = parked(session)
    session.world.set_weather(carla.WeatherParameters.HardRainNoon)
    view(session, camera)
    assert (view(session, camera) != view(session, camera)).mean() > 0.01
    session.world.set_weather(carla.WeatherParameters.CloudyNoon)
    view(session, camera)
    assert (view(session, camera) == view(session, camera)).all()


def changed(session, camera, car, lights):
    """Return the image with a car's lights on and without, where they differ."""
    car.set_light_state(carla.VehicleLightState.NONE)
    dark = view(session, camera)
    car.set_light_state(lights)
    lit = view(session, camera)
    where = (dark != lit).any(axis=2)
    return dark[where], lit[where], where


def test_brake_lights_shine_when_set_and_not_by_braking(session):
    ahead = session.car(ahead_m=8.0)
    camera, _ = parked(session)
    dark, lit, _ = changed(session, camera, ahead, carla.VehicleLightState.Brake)
    assert len(lit) > 5
    assert lit.mean() > dark.mean() + 15
    assert ahead.get_light_state() == carla.VehicleLightState.Brake
    ahead.set_light_state(carla.VehicleLightState.NONE)
    before = view(session, camera)
    ahead.apply_control(carla.VehicleControl(brake=1.0))
    assert (view(session, camera) == before).all()


def test_indicators_blink_by_simulated_time_on_their_side(session):
    ahead = session.car(ahead_m=8.0)
    camera, _ = parked(session)
    off = view(session, camera)
    ahead.set_light_state(carla.VehicleLightState.RightBlinker)
    shown = []
    for _ in range(32):
        where = (view(session, camera) != off).any(axis=2)
        shown.append(bool(where.any()))
        if where.any():
            assert np.flatnonzero(where.any(axis=0)).min() > 42
    # 0.8 s a blink of which half is on, 0.05 s a tick.
    assert shown.count(True) == 16
    assert sum(a != b for a, b in itertools.pairwise(shown)) in (3, 4)


def test_head_lamps_light_the_road_at_night(session):
    camera, car = parked(session)
    session.world.set_weather(carla.WeatherParameters.ClearNight)
    dark, lit, where = changed(session, camera, car, carla.VehicleLightState.LowBeam)
    assert where[42:].mean() > 0.2
    assert lit.mean() > 1.5 * dark.mean()


def place(car, ahead, right, up):
    where = car.get_transform()
    forward, side = where.get_forward_vector(), where.get_right_vector()
    return where.location + carla.Location(forward * ahead) + carla.Location(side * right) + carla.Location(z=up)


def share(image, channel):
    others = [c for c in range(3) if c != channel]
    return float(((image[..., channel] > 180) & (image[..., others] < 80).all(axis=2)).mean())


GREEN = carla.Color(0, 255, 0)
SHAPES = {
    "point": lambda debug, car: debug.draw_point(place(car, 8, 0, 1), 0.4, GREEN, 0.1),
    "line": lambda debug, car: debug.draw_line(place(car, 5, -1, 1), place(car, 20, 1, 1), 0.2, GREEN, 0.1),
    "arrow": lambda debug, car: debug.draw_arrow(place(car, 6, -1, 1), place(car, 9, 1, 1), 0.2, 0.4, GREEN, 0.1),
    "box": lambda debug, car: debug.draw_box(
        carla.BoundingBox(place(car, 10, 0, 1), carla.Vector3D(2, 1, 1)), car.get_transform().rotation, 0.2, GREEN, 0.1
    ),
    "string": lambda debug, car: debug.draw_string(place(car, 8, -1, 1), "hello", False, GREEN, 0.1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_seen_in_its_colour_for_its_life_time(session, shape):
    camera, car = parked(session, width=320, height=240)
    SHAPES[shape](session.world.debug, car)
    seen = [share(view(session, camera), 1) for _ in range(4)]
    assert min(seen[:2]) > 2e-4
    assert seen[2:] == [0.0, 0.0]


def test_a_shape_without_life_time_stays(session):
    camera, car = parked(session)
    session.world.debug.draw_point(place(car, 5, 0, 1), 0.5, GREEN)
    assert all(share(view(session, camera), 1) > 0.001 for _ in range(30))


def test_a_building_hides_only_the_line_behind_it(session):
    camera, car = parked(session)
    session.world.debug.draw_line(place(car, 8, -80, 1), place(car, 8, -60, 1), 0.3, GREEN)
    session.world.debug.draw_line(place(car, 60, -80, 1), place(car, 60, -40, 1), 1.0, GREEN)
    assert share(view(session, camera), 1) == 0.0
    session.world.debug.draw_line(place(car, 8, -2, 1), place(car, 8, 2, 1), 0.3, GREEN)
    assert share(view(session, camera), 1) > 0.001


def test_weather_and_lights_look_the_same_on_two_servers(start_server, connect):
    runs = []
    for _ in range(2):
        session = connect(start_server())
        camera = session.camera(session.car())
        session.car(ahead_m=9.0).set_light_state(carla.VehicleLightState.LeftBlinker)
        session.world.set_weather(carla.WeatherParameters.HardRainNight)
        session.world.debug.draw_string(carla.Location(), "here")
        runs.append([view(session, camera) for _ in range(12)])
    assert all((one == other).all() for one, other in zip(*runs, strict=True))
