"""The real client against a real server: depth, labels, numbers, normals, flow and events beside colours."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import time

import carla
import numpy as np
import pytest

from carla_lite.blueprints.sensors import REFUSED
from tests.wire.conftest import WAIT_S
from tests.wire.test_client_cameras import pixels

ONE_SERVER = True
ABOVE = carla.Transform(carla.Location(x=1.2, z=1.8), carla.Rotation(pitch=-12))
KINDS = ("rgb", "depth", "semantic_segmentation", "instance_segmentation", "normals", "optical_flow")


def cameras(session, parent, *kinds, where=ABOVE, width=256, height=144, **attributes):
    """Return queues of what cameras of these kinds see from one place."""
    queues: list[queue.Queue[carla.Image]] = []
    for kind in kinds:
        size = {"image_size_x": str(width), "image_size_y": str(height), **attributes}
        sensor = session.world.spawn_actor(session.blueprint(f"sensor.camera.{kind}", **size), where, parent)
        session.sensors.append(sensor)
        queues.append(queue.Queue())
        sensor.listen(queues[-1].put)
    return queues


def next_of(session, queues):
    frame = session.world.tick()
    images = [seen.get(timeout=WAIT_S) for seen in queues]
    assert [image.frame for image in images] == [frame] * len(images)
    return images


def metres(image):
    blue, green, red = (pixels(image)[..., part].astype(np.uint32) for part in range(3))
    return (red + 256 * green + 65536 * blue) / (2.0**24 - 1.0) * 1000.0


@pytest.mark.any_simulator
def test_depth_is_that_of_the_car_ahead_and_endless_in_the_sky(session):
    car = session.car()
    session.car(ahead_m=15.0)
    (depth,) = cameras(session, car, "depth", where=carla.Transform(carla.Location(x=1.2, z=0.7)))
    for _ in range(5):
        (image,) = next_of(session, [depth])
    seen = metres(image)
    half_m = car.bounding_box.extent.x
    assert seen[72, 128] == pytest.approx(15.0 - 1.2 - half_m, abs=0.5)
    assert seen[0].max() == 1000.0
    assert (pixels(image)[..., 3] == 255).all()


@pytest.mark.any_simulator
def test_labels_are_those_of_the_things_in_view(session):
    car, other = session.car(), session.car(ahead_m=12.0, name="vehicle.carlamotors.carlacola")
    semantic, instance = cameras(session, car, "semantic_segmentation", "instance_segmentation")
    for _ in range(5):
        labels, numbers = next_of(session, [semantic, instance])
    seen = pixels(labels)
    assert (seen[..., :2] == 0).all()
    assert {1, 11, *other.semantic_tags} <= set(np.unique(seen[..., 2]).tolist())
    assert (pixels(numbers)[..., 2] == seen[..., 2]).all()
    trucks = pixels(numbers)[seen[..., 2] == other.semantic_tags[0]]
    assert len(np.unique(trucks[:, :2], axis=0)) == 1


def test_cosmos_shows_vehicles_red_and_lines_blue(session):
    car = session.car()
    session.car(ahead_m=12.0)
    semantic, cosmos = cameras(session, car, "semantic_segmentation", "cosmos_visualization")
    for _ in range(5):
        labels, colors = next_of(session, [semantic, cosmos])
    tags, seen = pixels(labels)[..., 2], pixels(colors)
    assert (seen[tags == 14] == (0, 0, 255, 255)).all()
    assert (seen[tags == 24] == (249, 183, 98, 255)).all()
    assert (seen[(tags == 1) | (tags == 11)] == (0, 0, 0, 255)).all()
    assert {1, 11, 14, 24} <= set(np.unique(tags).tolist())


def test_labels_agree_with_the_environment_objects(session):
    (semantic,) = cameras(session, session.car(), "semantic_segmentation")
    (image,) = next_of(session, [semantic])
    labels = {int(each.type) for each in session.world.get_environment_objects(carla.CityObjectLabel.Any)}
    ground = {1, 2, 10, 11, 24}
    assert set(np.unique(pixels(image)[..., 2]).tolist()) - ground - {14} <= labels


def test_conversions_of_the_client_give_sensible_pictures(session):
    depth, semantic = cameras(session, session.car(), "depth", "semantic_segmentation")
    far, labels = next_of(session, [depth, semantic])
    tags, deep = pixels(labels)[..., 2].copy(), metres(far)
    labels.convert(carla.ColorConverter.CityScapesPalette)
    palette = pixels(labels)[..., 2::-1]
    assert (palette[tags == 1] == (128, 64, 128)).all()
    assert (palette[tags == 11] == (70, 130, 180)).all()
    far.convert(carla.ColorConverter.LogarithmicDepth)
    grey = pixels(far)[..., 0].astype(int)
    near, sky = (deep < 20.0), (tags == 11)
    assert grey[sky].min() == 255
    assert grey[near].max() < grey[sky].min()
    assert grey[near].std() > 5


def test_silhouettes_of_all_cameras_are_one(session):
    car = session.car()
    queues = cameras(session, car, *KINDS[:5])
    for _ in range(10):  # until the car stands still
        before = next_of(session, queues)
    session.car(ahead_m=9.0).set_simulate_physics(False)
    after = next_of(session, queues)
    rgb, depth, semantic, instance, normals = (
        (pixels(one) != pixels(other)).any(axis=2) for one, other in zip(before, after, strict=True)
    )
    shown = pixels(after[2])[..., 2] == 14
    assert shown.sum() > 300
    assert (semantic == shown).all()
    assert (instance == shown).all()
    assert (depth == shown).mean() > 0.999
    assert not (normals & ~shown).any()
    assert (rgb & shown).sum() > 0.98 * shown.sum()


@pytest.mark.any_simulator
def test_flow_is_sent_for_each_pixel(session):
    car = session.car()
    (flows,) = cameras(session, car, "optical_flow", width=64, height=48)
    (flow,) = next_of(session, [flows])
    first = np.frombuffer(flow.raw_data, np.float32)
    assert first.shape == (64 * 48 * 2,)
    car.set_target_velocity(car.get_transform().get_forward_vector() * 10.0)
    for _ in range(3):
        (image,) = next_of(session, [flows])
    seen = np.frombuffer(image.raw_data, np.float32).reshape(48, 64, 2)
    below = seen[40:]
    assert below[..., 1].mean() < -0.01  # the road comes nearer, and so goes down
    assert abs(below[:, 32, 0].mean()) < 0.02
    assert image.get_color_coded_flow().raw_data


def test_events_are_where_pixels_change_and_in_order(session):
    car = session.car()
    rgb, events = cameras(session, car, "rgb", "dvs", width=84, height=84)
    for _ in range(10):  # until the car stands still
        next_of(session, [rgb])
    while not events.empty():
        events.get()
    ahead = session.car(ahead_m=9.0)
    ahead.set_simulate_physics(False)
    before_s = session.world.get_snapshot().timestamp.elapsed_seconds
    frame = session.world.tick()
    seen = events.get(timeout=WAIT_S)
    assert seen.frame == frame
    array = np.frombuffer(seen.raw_data, np.dtype([("x", "<u2"), ("y", "<u2"), ("t", "<i8"), ("pol", "?")]))
    assert len(array) > 50
    assert (np.diff(array["t"]) >= 0).all()
    assert before_s * 1e9 - 1 <= array["t"].min()
    assert array["t"].max() <= seen.timestamp * 1e9 + 1
    assert array["x"].max() < 84
    session.world.tick()
    rgb.get(timeout=WAIT_S)
    time.sleep(0.05)
    assert events.empty()


@pytest.mark.parametrize("size", [(1920, 1080), (2560, 1600), (33, 17)])
def test_any_size_is_sent_whole(session, size):
    queues = cameras(session, session.car(), "rgb", "depth", "semantic_segmentation", width=size[0], height=size[1])
    for image in next_of(session, queues):
        assert (image.width, image.height) == size
        assert len(np.unique(pixels(image)[::7, ::7].reshape(-1, 4), axis=0)) > 3


def test_cameras_are_turned_with_pitch_and_roll(session):
    car = session.car()
    ((upright,), (rolled,)) = (
        cameras(session, car, "semantic_segmentation", where=carla.Transform(ABOVE.location, turn), width=99, height=99)
        for turn in (carla.Rotation(pitch=-12), carla.Rotation(pitch=-12, roll=180))
    )
    one, other = (pixels(image)[..., 2] for image in next_of(session, [upright, rolled]))
    assert (one[::-1, ::-1] == other).mean() > 0.97
    (down,) = cameras(session, car, "depth", where=carla.Transform(carla.Location(z=10.0), carla.Rotation(pitch=-90)))
    (image,) = next_of(session, [down])
    assert metres(image)[72, 20] == pytest.approx(image.transform.location.z, abs=0.05)  # the town is level


@pytest.mark.parametrize("kind", [carla.AttachmentType.SpringArm, carla.AttachmentType.SpringArmGhost])
def test_a_spring_arm_looks_along_itself_and_keeps_level(session, kind):
    car = session.car()
    blueprint = session.blueprint("sensor.camera.depth", image_size_x="64", image_size_y="64")
    arm = carla.Transform(carla.Location(x=-4.0, z=3.0), carla.Rotation(pitch=8.0))
    camera = session.world.spawn_actor(blueprint, arm, car, kind)
    session.world.tick()
    where, of = camera.get_transform(), car.get_transform()
    assert where.rotation.pitch == pytest.approx(8.0 - 36.87, abs=0.01)
    assert where.rotation.yaw == pytest.approx(of.rotation.yaw, abs=0.01)
    up = 3.3 if kind is carla.AttachmentType.SpringArm else 3.0
    assert where.location.z - of.location.z == pytest.approx(up, abs=0.01)
    assert where.location.distance_2d(of.location) == pytest.approx(4.0, abs=0.01)


@pytest.mark.parametrize(
    ("step_s", "tick_s", "frames"),
    [
        (0.02, 0.03, [0, 2, 3, 5, 6, 8]),
        (0.02, 0.04, [0, 2, 4, 6, 8]),
        (0.05, 0.12, [0, 3, 5, 8, 10]),
        (0.1, 0.03, [0, 1, 2, 3, 4]),
    ],
)
def test_a_sensor_tick_beside_the_step_keeps_its_rate(session, step_s, tick_s, frames):
    settings = session.world.get_settings()
    settings.fixed_delta_seconds = step_s
    session.world.apply_settings(settings)
    (depth,) = cameras(session, session.car(), "depth", width=16, height=16, sensor_tick=str(tick_s))
    first = session.world.tick()
    session.ticks(12)
    assert [depth.get(timeout=WAIT_S).frame - first for _ in frames] == frames


def test_no_sensor_of_the_library_is_left_out_without_a_word(session):
    car = session.car()
    for blueprint in session.world.get_blueprint_library().filter("sensor.camera.*"):
        try:
            session.sensors.append(session.world.spawn_actor(blueprint, ABOVE, car))
        except RuntimeError as error:
            assert REFUSED[blueprint.id] in str(error)  # noqa: PT017 (pytest.raises would keep the actor's frame alive)


GBUFFER = """
import sys, carla
client = carla.Client("127.0.0.1", int(sys.argv[1]))
client.set_timeout(20.0)
world = client.get_world()
camera = world.spawn_actor(world.get_blueprint_library().find("sensor.camera.rgb"), carla.Transform())
try:
    camera.listen(lambda image: None)
    world.wait_for_tick()
    camera.listen_to_gbuffer(carla.GBufferTextureID.SceneDepth, lambda image: None)
finally:
    camera.destroy()
"""


def test_a_g_buffer_is_refused_in_words(start_server):
    server = start_server()
    program = [sys.executable, "-c", GBUFFER, str(server.port)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "carla-lite has no G-buffers" in done.stderr
    # By the exception; at times the client aborts as its process ends after it (protocol, section 5.5).
    assert done.returncode in (1, -signal.SIGABRT)


def test_a_seed_gives_the_same_bytes_after_a_restart(start_server, connect):
    runs = []
    for _ in range(2):
        session = connect(start_server())
        car = session.car()
        session.car(ahead_m=9.0)
        queues = cameras(session, car, *KINDS, width=84, height=84)
        car.apply_control(carla.VehicleControl(throttle=0.5, steer=0.1))
        runs.append([[bytes(image.raw_data) for image in next_of(session, queues)] for _ in range(20)])
    assert runs[0] == runs[1]
