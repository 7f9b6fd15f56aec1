"""The real client against a real server: connecting, settings, ticks, maps, several clients."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time

import carla
import msgpack
import pytest

from carla_launcher import config, wiring
from carla_launcher.observe.health import Address
from carla_launcher.observe.simulator import SimulatorMonitor
from tests.crowd import PATIENCE_S, until
from tests.faults import run
from tests.wire.conftest import DELTA_S

PROTOCOL_VERSION = "0.9.16"


def test_a_client_gets_the_towns_of_carla_lite(session):
    assert session.world.get_map().name.rsplit("/")[-1] == "Lite01"
    assert {name.rsplit("/")[-1] for name in session.client.get_available_maps()} >= {"Lite01", "Lite02"}


@pytest.mark.any_simulator
def test_a_client_gets_version_map_and_blueprints(session):
    assert session.client.get_server_version() == PROTOCOL_VERSION
    town = session.world.get_map()
    assert len(town.get_spawn_points()) >= 20
    assert len(town.generate_waypoints(5.0)) > 100
    library = session.world.get_blueprint_library()
    assert len(library.filter("vehicle.*")) >= 5
    tesla = library.find("vehicle.tesla.model3")
    assert tesla.get_attribute("number_of_wheels").as_int() == 4
    assert tesla.get_attribute("base_type").as_str() == "car"
    assert len(tesla.get_attribute("color").recommended_values) > 1


def test_spawn_points_lie_on_driving_lanes(session):
    town = session.world.get_map()
    for point in town.get_spawn_points():
        lane = town.get_waypoint(point.location, project_to_road=True)
        assert lane.transform.location.distance(point.location) < 1.0
        assert abs((lane.transform.rotation.yaw - point.rotation.yaw + 180) % 360 - 180) < 5.0


@pytest.mark.any_simulator
def test_a_snapshot_is_that_of_its_tick(session):
    first = session.world.tick()
    for number in range(1, 50):
        assert session.world.tick() == first + number
        snapshot = session.world.get_snapshot()
        assert snapshot.frame == first + number
        assert snapshot.timestamp.delta_seconds == pytest.approx(0.05)
    start = session.world.get_snapshot().timestamp.elapsed_seconds
    session.world.tick()
    assert session.world.get_snapshot().timestamp.elapsed_seconds == pytest.approx(start + 0.05)


def test_a_tick_takes_as_long_as_asked_for_at_least(start_server, connect):
    says = "import time; time.sleep = lambda seconds: print('the tick waits', seconds, flush=True)"
    session = connect(server := start_server(extra=("--tick-ms", "10000"), prelude=says))
    before = len(server.output)
    session.ticks(10)
    waits_s = [float(line.split()[-1]) for line in server.output[before:].splitlines() if "waits" in line]
    assert len(waits_s) == 10
    assert all(0 < wait_s < 10 for wait_s in waits_s), "what the tick itself has taken is a part of it"


@pytest.mark.any_simulator
def test_settings_are_given_back_and_the_step_follows_them(session):
    settings = session.world.get_settings()
    settings.fixed_delta_seconds = 0.1
    session.world.apply_settings(settings)
    assert session.world.get_settings().fixed_delta_seconds == pytest.approx(0.1)
    session.world.tick()
    assert session.world.get_snapshot().timestamp.delta_seconds == pytest.approx(0.1)


def test_a_step_that_makes_no_sense_is_refused_in_words(session):
    settings = session.world.get_settings()
    settings.fixed_delta_seconds = float("inf")
    with pytest.raises(RuntimeError, match=r"fixed_delta_seconds is inf, expected"):
        session.world.apply_settings(settings)


@pytest.mark.parametrize("delta_s", [2.5, 1000.0])
def test_the_clock_follows_a_step_above_a_second(session, delta_s):
    car = session.car()
    settings = session.world.get_settings()
    settings.fixed_delta_seconds = delta_s
    session.world.apply_settings(settings)
    before = session.world.get_snapshot().timestamp
    car.set_target_velocity(car.get_transform().get_forward_vector() * 10.0)
    session.world.tick()
    after = session.world.get_snapshot().timestamp
    assert after.delta_seconds == pytest.approx(delta_s)
    assert after.elapsed_seconds - before.elapsed_seconds == pytest.approx(delta_s)
    driven_m = car.get_location().distance(session.world.get_map().get_spawn_points()[0].location)
    assert 0.9 < driven_m < 1.6, "ten substeps of 10 ms, as in CARLA, and the drop from above the road"


@pytest.mark.parametrize(("substepping", "moved_m"), [(True, 5.0), (False, 3.3)])
def test_substeps_limit_how_far_a_tick_moves_cars(session, substepping, moved_m):
    car = session.car()
    settings = session.world.get_settings()
    settings.fixed_delta_seconds, settings.substepping = 1.0, substepping
    settings.max_substep_delta_time, settings.max_substeps = 0.05, 10
    session.world.tick()
    session.world.apply_settings(settings)
    start = car.get_location()
    car.set_target_velocity(car.get_transform().get_forward_vector() * 10.0)
    session.world.tick()
    assert car.get_location().distance(start) == pytest.approx(moved_m, abs=0.4)


@pytest.mark.any_simulator
def test_only_asynchronous_mode_runs_without_ticks(session):
    frame = session.world.get_snapshot().frame
    time.sleep(0.3)
    assert session.world.get_snapshot().frame == frame
    settings = session.world.get_settings()
    settings.synchronous_mode = False
    session.world.apply_settings(settings)
    frame = session.world.get_snapshot().frame
    for _ in range(5):
        assert session.world.wait_for_tick(PATIENCE_S).frame > frame
        frame = session.world.get_snapshot().frame


@pytest.mark.parametrize("step_s", [None, DELTA_S])
def test_a_tick_in_asynchronous_mode_waits_for_the_next_frame(start_server, connect, step_s):
    world = connect(start_server(), synchronous=False).world
    settings = world.get_settings()
    settings.fixed_delta_seconds = step_s
    world.apply_settings(settings)
    started_s, before = time.monotonic(), world.get_snapshot()
    frames = [world.tick() for _ in range(20)]
    simulated_s = world.get_snapshot().timestamp.elapsed_seconds - before.timestamp.elapsed_seconds
    passed_s = time.monotonic() - started_s
    assert frames == sorted(set(frames))
    assert simulated_s < passed_s + 2.0 * DELTA_S


def test_another_town_is_loaded_and_reloaded_as_a_new_episode(session):
    session.car()
    old = session.world.id
    world = session.client.load_world("Lite02")
    assert world.get_map().name.endswith("Lite02")
    assert world.id != old
    assert not world.get_settings().synchronous_mode
    assert session.client.load_world_if_different("Lite02") is None
    reloaded = session.client.reload_world()
    assert reloaded.id != world.id
    assert not reloaded.get_actors().filter("vehicle.*")
    with pytest.raises(RuntimeError, match="this server has no map Town99, expected one of Lite01, Lite02"):
        session.client.load_world("Town99")


def test_reloading_can_keep_the_settings(session):
    world = session.client.reload_world(False)
    assert world.get_settings().synchronous_mode
    frame = world.tick()
    assert world.get_snapshot().frame == frame


def test_a_world_is_generated_from_opendrive(session):
    town = session.world.get_map()
    world = session.client.generate_opendrive_world(town.to_opendrive())
    assert world.get_map().name.endswith("OpenDriveMap")
    assert len(world.get_map().get_spawn_points()) == len(town.get_spawn_points())
    with pytest.raises(RuntimeError, match="OpenDriveMap"):
        session.client.generate_opendrive_world("<nothing/>")


def test_two_clients_see_the_same_world(start_server, connect):
    server = start_server()
    one = connect(server)
    two = connect(server, synchronous=False)
    car = one.car()
    frame = one.world.tick()
    assert two.world.get_actor(car.id).type_id == "vehicle.tesla.model3"
    until(lambda: two.world.get_snapshot().frame >= frame)
    assert two.world.get_snapshot().find(car.id).get_transform() == car.get_transform()


def test_a_killed_clients_world_waits_and_says_so(start_server, connect):
    server = start_server()
    code = (
        "import carla, queue\n"
        f"client = carla.Client('127.0.0.1', {server.port}); world = client.get_world()\n"
        "settings = world.get_settings(); settings.synchronous_mode = True; settings.fixed_delta_seconds = 0.05\n"
        "world.apply_settings(settings)\n"
        "camera = world.spawn_actor(world.get_blueprint_library().find('sensor.camera.rgb'), carla.Transform())\n"
        "camera.listen(queue.Queue().put)\n"
        "print('ticking', flush=True)\n"
        "while True: world.tick()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "ticking\n"
        time.sleep(0.3)
        doomed.kill()
    heir = connect(server, synchronous=False)
    until(lambda: heir.world.get_snapshot().frame > 0)  # the world's first message has come
    standing = heir.world.get_snapshot().frame
    time.sleep(0.3)
    assert heir.world.get_snapshot().frame == standing
    left = re.findall(r"client at 127\.0\.0\.1:\d+ left in synchronous mode: .* waits at frame (\d+)", server.output)
    assert left == [str(standing)]
    frame = heir.world.tick()
    assert frame == standing + 1
    assert heir.world.tick() == frame + 1
    assert [actor.type_id for actor in heir.world.get_actors().filter("sensor.*")] == ["sensor.camera.rgb"]


def test_a_visitor_without_rpc_is_hung_up_on(start_server):
    port = start_server().port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as visitor:
        visitor.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert visitor.recv(1) == b""
    assert carla.Client("127.0.0.1", port).get_server_version() == PROTOCOL_VERSION


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(start_server, number):
    server = start_server()
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE_S) == 0


SENSELESS: list[tuple[str, list[object]]] = [
    ("spawn_actor", [None, None]),
    ("spawn_actor", [[1, "vehicle.flying.carpet", []], [[0, 0, 0], [0, 0, 0]]]),
    ("apply_control_to_vehicle", [1, [0, 0, 0, False, False, False, 0]]),
    ("set_actor_transform", ["x", []]),
    ("load_new_episode", [7, True, 0]),
    ("set_episode_settings", [[]]),
    ("tick_cue", [1, 2, 3]),
    ("", []),
]


def test_senseless_calls_are_answered_with_a_failure(start_server):
    with socket.create_connection(("127.0.0.1", start_server().port), timeout=PATIENCE_S) as caller:
        replies = msgpack.Unpacker(raw=False)
        for number, (method, arguments) in enumerate([*SENSELESS, ("version", [])]):
            caller.sendall(msgpack.packb([0, number, method, [[False], *arguments]]))
            replies.feed(caller.recv(1 << 16))
            kind, answered, error, result = next(replies)
            assert (kind, answered, error) == (1, number, None)
            if method != "version":
                assert result[0][0] == 0, method
                assert result[0][1][0]
        assert result == [[1, PROTOCOL_VERSION]]


def test_a_port_in_use_is_named(start_server):
    port = start_server().port
    ended = run("--port", str(port))
    assert ended.returncode == 69
    assert ended.stderr.count("\n") == 1
    assert f"port {port}" in ended.stderr
    assert "--port" in ended.stderr


def test_a_port_that_can_not_be_is_a_matter_of_usage():
    assert run("--port", "65535").returncode == 2


def test_a_missing_map_is_named_with_those_that_exist():
    ended = run("--map", "Atlantis")
    assert ended.returncode == 65
    assert ended.stderr.count("\n") == 1
    assert "Atlantis" in ended.stderr
    assert "Lite01" in ended.stderr


def test_a_broken_map_is_named(tmp_path):
    (tmp_path / "torn.xodr").write_text("<OpenDRIVE><road", encoding="utf-8")
    ended = run("--map", str(tmp_path / "torn.xodr"))
    assert ended.returncode == 65
    assert ended.stderr.count("\n") == 1
    assert "torn" in ended.stderr


@pytest.mark.parametrize(("ours", "ticked"), [(False, False), (True, True)])
def test_the_launcher_ticks_only_its_own_world(start_server, connect, ours, ticked):
    server = start_server()
    session = connect(server)
    frame = session.world.tick()
    address = Address("127.0.0.1", server.port)
    questions = wiring.questions(address, config.load(), ours=ours)
    monitor = SimulatorMonitor(address, questions, log=None)
    until(lambda: monitor.look(time.monotonic(), None, in_use=False).healthy)
    monitor.close()
    assert (session.world.tick() > frame + 1) is ticked
