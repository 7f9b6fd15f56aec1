"""Compiled carla-lite beside its .py files: the same bytes on every stream, and it says which of both runs."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
import time

import carla
import numpy as np
import pytest

from carla_lite.compiled import FOLDER_VARIABLE
from tests.crowd import PATIENCE_S
from tests.wire.test_client_driving import drive, hexed, listening, state_of

EVENT = np.dtype([("x", "<u2"), ("y", "<u2"), ("t", "<i8"), ("rises", "?")])
WEATHERS = ("ClearNoon", "HardRainNoon", "ClearNight", "HardRainNight")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where compiled code is kept: what is there for these sources is used, as it would be by users."""
    given = os.environ.get(FOLDER_VARIABLE) or str(tmp_path_factory.mktemp("compiled"))
    environment = {**os.environ, FOLDER_VARIABLE: given}
    subprocess.run([sys.executable, "-m", "carla_lite.compiled"], env=environment, timeout=1500, check=True)
    return given


def live(session):
    """Return by stream what a street with cars, people and a barrier shows in all weathers, small and large."""
    streams: dict[str, list[object]] = {"world": [], "gnss": []}
    car, other = session.car(), session.car(ahead_m=12.0, name="vehicle.carlamotors.carlacola")
    here, ahead = car.get_transform(), car.get_transform().get_forward_vector()
    people = []
    for number in range(8):
        place = carla.Transform(here.location + ahead * (8.0 + 3.0 * number), here.rotation)
        place.location += here.get_right_vector() * (3.5 - number) + carla.Vector3D(z=1.0)
        walker = session.world.try_spawn_actor(session.blueprint(f"walker.pedestrian.{number + 1:04}"), place)
        if walker is not None:
            walker.apply_control(carla.WalkerControl(here.get_right_vector(), 1.0 + 0.2 * number))
            people.append(walker)
    place = carla.Transform(here.location + ahead * 60.0, here.rotation)
    people.append(session.world.spawn_actor(session.blueprint("static.prop.streetbarrier"), place))
    cameras = {"small": session.camera(car, fov="100"), "large": session.camera(car, 400, 300)}
    for kind in ("depth", "instance_segmentation", "normals", "optical_flow"):
        cameras[kind] = session.camera(car, kind=kind)
    rays = {
        kind: listening(session, f"sensor.{kind}", car)
        for kind in ("lidar.ray_cast", "lidar.ray_cast_semantic", "other.radar")
    }
    changes = session.camera(car, kind="dvs")  # nothing where nothing changes
    fixes: queue.Queue[carla.GnssMeasurement] = listening(session, "sensor.other.gnss", car, noise_seed="3")
    lights = carla.VehicleLightState.LowBeam | carla.VehicleLightState.LeftBlinker
    for weather in WEATHERS:
        session.world.set_weather(getattr(carla.WeatherParameters, weather))
        car.set_light_state(carla.VehicleLightState(lights if "Night" in weather else carla.VehicleLightState.NONE))
        for number in range(25):
            car.apply_control(
                carla.VehicleControl(throttle=0.6, steer=0.02 * (number % 7 - 3), brake=float(number > 22))
            )
            other.apply_control(carla.VehicleControl(throttle=0.3, steer=0.5))
            session.world.tick()
            streams["world"].append([state_of(actor) for actor in (car, other, *people)])
            for name, camera in cameras.items():
                streams.setdefault(name, []).append(hashlib.sha256(bytes(camera.next().raw_data)).hexdigest())
            for name, seen in rays.items():
                raw = bytes(seen.get(timeout=PATIENCE_S).raw_data)
                streams.setdefault(name, []).append(hashlib.sha256(raw).hexdigest())
            streams["gnss"].append(hexed(fixes.get(timeout=PATIENCE_S).latitude))
    time.sleep(0.2)
    # Their times count from the episode's begin, and how long it ran freely differs.
    for change in changes.images.queue:
        events = np.frombuffer(change.raw_data, EVENT)
        streams.setdefault("events", []).append(sorted((x, y, rises) for x, y, _, rises in events.tolist()))
    return streams


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", [drive, live])
def test_compiled_code_gives_the_same_bytes_on_every_stream(folder, start_server, connect, monkeypatch, what):
    shown, said = [], []
    for code in (folder, ""):
        monkeypatch.setenv(FOLDER_VARIABLE, code)
        shown.append(what(connect(server := start_server())))
        said += [line for line in server.output.splitlines() if line.startswith("carla-lite: runs ")]
    assert said[0] == "carla-lite: runs compiled code"
    assert said[1].startswith("carla-lite: runs the .py files, not compiled (")
    for name, messages in shown[0].items():
        assert messages == shown[1][name], name
        assert len({str(message) for message in messages}) > (50 if name != "collision" else 0), name


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_control_port_says_which_code_runs(folder, start_faulty, monkeypatch):
    for code, said in ((folder, "yes"), ("", "no")):
        monkeypatch.setenv(FOLDER_VARIABLE, code)
        assert start_faulty().status()["compiled"] == said
