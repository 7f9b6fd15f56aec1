"""The real client records, replays and asks about recordings; a recording's frames come back as they were."""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import carla
import pytest

from tests.conftest import Server, port_pair, serve
from tests.wire.conftest import Session, session_of, spawned

TICKS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorder") / "recordings"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = serve(extra=("--recordings", str(folder)))
    yield server
    server.end()


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    """A synchronous session in an episode of its own."""
    session = session_of("127.0.0.1", server.port)
    session.world = session.client.reload_world(False)
    yield session
    session.client.stop_recorder()
    session.client.set_replayer_time_factor(1.0)
    session.client.set_replayer_ignore_hero(False)
    session.client.set_replayer_ignore_spectator(False)
    session.close()


def walker(session: Session, place: int, right_m: float = 3.0) -> carla.Walker:
    where = session.world.get_map().get_spawn_points()[place]
    where.location += carla.Location(where.get_right_vector() * right_m)
    actor = session.world.spawn_actor(session.blueprint("walker.pedestrian.0001"), where)
    session.actors.append(actor)
    return actor


def moving(session: Session) -> dict[int, tuple[float, ...]]:
    """Return place and rotation of vehicles and walkers."""
    poses: dict[int, tuple[float, ...]] = {}
    for actor in session.world.get_snapshot():
        if actor.id in {each.id for each in session.actors}:
            at, turn = actor.get_transform().location, actor.get_transform().rotation
            poses[actor.id] = (at.x, at.y, at.z, turn.pitch, turn.yaw, turn.roll)
    return poses


def near(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether two poses are the same in single precision: centimetres in the file, metres on the wire."""
    places = all(math.isclose(a, b, abs_tol=3e-5) for a, b in zip(one[:3], other[:3], strict=True))
    return places and all(abs(math.remainder(a - b, 360.0)) < 1e-3 for a, b in zip(one[3:], other[3:], strict=True))


def lights(session: Session) -> dict[int, tuple[str, float]]:
    """Return each traffic light's state and how long it has had it, in hundredths of a second."""
    found = session.world.get_actors().filter("traffic.traffic_light")
    return {each.id: (str(each.get_state()), round(100.0 * each.get_elapsed_time())) for each in found}


def record(session: Session, name: str, ticks: int, additional: bool = False) -> list[dict[int, tuple[float, ...]]]:
    session.client.start_recorder(name, additional)
    recorded = []
    for _ in range(ticks):
        session.world.tick()
        recorded.append(moving(session))
    session.client.stop_recorder()
    return recorded


def traffic(session: Session, cars: int = 5) -> carla.TrafficManager:
    manager = session.client.get_trafficmanager(port_pair())
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(3)
    for place in range(cars):
        session.car(place).set_autopilot(True, manager.get_port())
    for place in range(2):
        person = walker(session, place)
        person.apply_control(carla.WalkerControl(person.get_transform().get_forward_vector(), 1.4, False))
    return manager


def test_a_replay_shows_each_recorded_frame(session, folder):
    manager = traffic(session)
    session.client.start_recorder("traffic.log")
    recorded, lamps = [], []
    for _ in range(TICKS):
        session.world.tick()
        recorded.append(moving(session))
        lamps.append(lights(session))
    session.client.stop_recorder()
    manager.shut_down()
    moved = [math.dist(recorded[0][each][:2], recorded[-1][each][:2]) for each in recorded[0]]
    assert sorted(moved)[len(moved) // 2] > 5.0
    session.client.apply_batch_sync([carla.command.DestroyActor(actor) for actor in session.actors], True)
    assert not moving(session)
    told = session.client.replay_file("traffic.log", 0.0, 0.0, 0)
    assert told.splitlines() == [
        f"Replaying File: {folder / 'traffic.log'}",
        "Total time recorded: 9.95",
        "Replaying from 0 s - 9.95 s (9.95 s) at 1.0x",
    ]
    people = [actor for actor in session.actors if isinstance(actor, carla.Walker)]
    for number, frame in enumerate(recorded, 1):
        session.world.tick()
        shown = moving(session)
        assert shown.keys() == frame.keys()
        assert [each for each in frame if not near(frame[each], shown[each])] == [], f"tick {number}"
        walks = 0.0 if frame is recorded[-1] else 1.4
        assert [session.world.get_actor(each.id).get_control().speed for each in people] == pytest.approx([walks] * 2)
        assert lights(session) == lamps[number - 1], f"tick {number}"
    car = session.world.get_actor(session.actors[0].id)
    at = car.get_location()
    session.ticks(20)
    assert (car.get_location().distance(at), car.get_velocity().length()) == (
        pytest.approx(0.0, abs=0.2),
        pytest.approx(0.0, abs=0.1),
    )


def test_the_second_recording_of_a_replay_is_the_first(session):
    """Round trip: what a replay moves, recorded again, has the same places."""
    session.car(0).apply_control(carla.VehicleControl(throttle=0.7, steer=0.1))
    first = record(session, "first.log", 30)
    session.client.replay_file("first.log", 0.0, 0.0, 0)
    replayed = []
    for _ in first:
        session.world.tick()
        replayed.append(moving(session))
    assert all(near(one[each], other[each]) for one, other in zip(first, replayed, strict=True) for each in one)


def test_a_part_of_a_recording_at_another_pace(session):
    session.car(0).apply_control(carla.VehicleControl(throttle=0.7))
    recorded = record(session, "pace.log", 100)
    (car,) = (actor.id for actor in session.actors)
    cases = [(1.0, 2.0, 0.0, 40), (2.0, 0.0, 0.0, 0), (0.5, 0.0, 0.0, 0), (1.0, -1.0, 0.0, 79), (1.0, 1.0, 1.0, 20)]
    for factor, start_s, duration_s, first in cases:
        session.client.set_replayer_time_factor(factor)
        told = session.client.replay_file("pace.log", start_s, duration_s, 0)
        begin = start_s if start_s >= 0.0 else 4.95 + start_s
        end = begin + duration_s if duration_s else 4.95
        assert f"Replaying from {begin:g} s - {end:g} s (4.95 s) at {factor:.1f}x" in told
        for tick in range(1, 11):
            session.world.tick()
            frame = first + factor * tick
            low, high = recorded[math.floor(frame) - 1][car], recorded[math.ceil(frame) - 1][car]
            share = frame - math.floor(frame)
            expected = tuple(a + share * (b - a) for a, b in zip(low, high, strict=True))
            if math.floor(frame) >= 1:
                assert near(moving(session)[car], expected), (factor, start_s, tick)
    session.ticks(15)
    before = moving(session)[car]
    session.ticks(5)
    assert math.dist(before[:2], moving(session)[car][:2]) < 0.2, "a duration of 1 s is over"


def test_hero_and_spectator_can_be_left_out_and_followed(session):
    hero = session.world.spawn_actor(
        session.blueprint("vehicle.tesla.model3", role_name="hero"), session.world.get_map().get_spawn_points()[0]
    )
    session.actors.append(hero)
    other = session.car(1)
    spectator = session.world.get_spectator()
    spectator.set_transform(carla.Transform(carla.Location(1.0, 2.0, 30.0)))
    hero.apply_control(carla.VehicleControl(throttle=0.6))
    record(session, "hero.log", 40)
    session.client.apply_batch_sync([carla.command.DestroyActor(each) for each in (hero, other)], True)
    spectator.set_transform(carla.Transform(carla.Location(5.0, 6.0, 40.0)))

    session.client.set_replayer_ignore_hero(True)
    session.client.set_replayer_ignore_spectator(True)
    told = session.client.replay_file("hero.log", 0.0, 0.0, 0)
    assert told.endswith("Ignoring Hero vehicle\nIgnoring Spectator camera\n")
    session.ticks(5)
    assert [each.id for each in session.world.get_actors().filter("vehicle.*")] == [other.id]
    assert spectator.get_location().distance(carla.Location(5.0, 6.0, 40.0)) < 1e-3

    session.client.set_replayer_ignore_hero(False)
    session.client.set_replayer_ignore_spectator(False)
    session.client.replay_file("hero.log", 0.0, 0.0, 0)
    session.ticks(5)
    assert spectator.get_location().distance(carla.Location(1.0, 2.0, 30.0)) < 1e-3

    session.client.replay_file("hero.log", 0.0, 0.0, hero.id, False, carla.Transform(carla.Location(x=-8.0, z=3.0)))
    session.ticks(30)
    seen = session.world.get_actor(hero.id).get_transform()
    behind = seen.transform(carla.Location(x=-8.0, z=3.0))
    assert spectator.get_location().distance(behind) < 1e-2
    assert session.world.get_actor(hero.id).get_control().throttle == pytest.approx(0.6)
    assert session.world.get_actor(hero.id).get_velocity().length() > 0.5
    session.client.replay_file("hero.log", 0.0, 0.0, hero.id)
    session.ticks(2)
    assert spectator.get_transform().rotation.pitch == pytest.approx(-25.0, abs=0.5), "the client's own offset"


def test_actors_come_and_go_as_recorded(session):
    one = session.car(0)
    session.client.start_recorder("events.log", True)
    session.ticks(10)
    two = session.car(1)
    cone = session.world.spawn_actor(
        session.blueprint("static.prop.constructioncone"), carla.Transform(carla.Location(x=1.0)), one
    )
    session.sensor("sensor.other.gnss", one, lambda _event: None)
    two.set_light_state(carla.VehicleLightState(carla.VehicleLightState.LowBeam))
    session.ticks(10)
    session.client.apply_batch_sync([carla.command.DestroyActor(two)], True)
    session.ticks(9)
    session.client.stop_recorder()
    told = session.client.show_recorder_file_info("events.log", False)
    assert re.search(rf"Frame 11 at 0\.5 seconds\n Create {two.id}: vehicle.tesla.model3 \(1\) at \(", told)
    assert f" Parenting {cone.id} with {one.id} (parent)\n" in told
    assert f"Frame 21 at 1 seconds\n Destroy {two.id}\n" in told
    all_of_it = session.client.show_recorder_file_info("events.log", True)
    for title in ("Dynamic actors: ", "Actor bounding boxes: ", "Current platform time: ", "Physics Control events: 1"):
        assert title in all_of_it
    session.client.apply_batch_sync([carla.command.DestroyActor(each) for each in (one, *session.sensors)], True)
    session.sensors.clear()
    session.client.replay_file("events.log", 0.0, 0.0, 0)
    session.ticks(5)
    assert [each.id for each in session.world.get_actors().filter("vehicle.*")] == [one.id]
    session.ticks(10)
    assert two.id in [each.id for each in session.world.get_actors()]
    lights = dict(session.client.get_world().get_vehicles_light_states())
    assert lights[two.id] == carla.VehicleLightState.LowBeam
    session.ticks(10)
    kinds = sorted(spawned(session.world.get_actors()))
    assert kinds == ["spectator", "static.prop.constructioncone", "vehicle.tesla.model3"]
    session.client.stop_replayer(True)
    session.client.replay_file("events.log", 0.75, 0.0, 0, True)
    session.world.tick()
    (gnss,) = session.world.get_actors().filter("sensor.other.gnss")
    assert gnss.parent.id == one.id
    session.client.stop_replayer(False)
    session.world.tick()
    assert two.id not in [each.id for each in session.world.get_actors()]


def test_a_walker_that_a_car_knocks_over_lies_in_the_replay(session):
    car = session.car(0)
    session.ticks(5)
    where = car.get_transform()
    where.location += where.get_forward_vector() * 15.0 + carla.Location(z=1.0)
    person = session.world.spawn_actor(session.blueprint("walker.pedestrian.0001", is_invincible="false"), where)
    session.actors.append(person)
    car.apply_control(carla.VehicleControl(throttle=1.0))
    recorded = record(session, "fall.log", 80)
    assert recorded[-1][person.id][3] == -90.0
    session.client.replay_file("fall.log", 0.0, 0.0, 0)
    for frame in recorded:
        session.world.tick()
        assert near(moving(session)[person.id], frame[person.id])


def test_collisions_and_blocked_cars_are_told(session):
    ahead = session.car(0, ahead_m=12.0)
    behind = session.car(0)
    session.sensor("sensor.other.collision", behind, lambda _event: None)
    session.client.start_recorder("crash.log")
    behind.apply_control(carla.VehicleControl(throttle=1.0))
    session.ticks(100)
    session.client.stop_recorder()
    told = session.client.show_recorder_collisions("crash.log", "v", "a")
    version, town, date, rest = told.split("\n", 3)
    assert (version, town) == ("Version: 1", "Map: Lite01")
    assert re.fullmatch(r"Date: \d\d/\d\d/\d\d \d\d:\d\d:\d\d", date)
    rows = [line.split() for line in rest.splitlines() if "v v" in line]
    assert [rows[0][3], rows[0][4], rows[0][5]] == [str(behind.id), "vehicle.tesla.model3", str(ahead.id)]
    assert rest.endswith("\nFrames: 100\nDuration: 5 seconds\n")
    assert "v v" not in session.client.show_recorder_collisions("crash.log", "w", "a")
    blocked = session.client.show_recorder_actors_blocked("crash.log", 0.5, 10)
    assert re.search(rf"\n +0 +{ahead.id} vehicle.tesla.model3 +\d+\n", blocked)
    assert not re.search(rf" {behind.id} vehicle.tesla.model3 +[3-9]\n", blocked)


def test_a_replay_runs_by_itself_in_asynchronous_mode(session):
    session.car(0).apply_control(carla.VehicleControl(throttle=0.7))
    recorded = record(session, "alone.log", 40)
    (car,) = (actor.id for actor in session.actors)
    settings = session.world.get_settings()
    settings.synchronous_mode = False
    session.world.apply_settings(settings)
    session.client.replay_file("alone.log", 0.0, 0.0, 0)
    seen: list[carla.Location] = []
    end = carla.Location(*recorded[-1][car][:3])
    deadline = time.monotonic() + 60.0
    while not seen or seen[-1].distance(end) > 0.3:
        session.world.wait_for_tick(20.0)
        seen.append(session.world.get_actor(car).get_location())
        assert time.monotonic() < deadline
    assert len(seen) > 5


def test_a_recording_of_another_map_loads_it(session):
    session.car(0)
    record(session, "first-town.log", 5)
    session.client.load_world("Lite02", False)
    told = session.client.replay_file("first-town.log", 0.0, 0.0, 0)
    assert "Loading map Lite01\nReplayer will start after map is loaded...\n" in told
    world = session.client.get_world()
    assert world.get_map().name.endswith("Lite01")
    assert len(world.get_actors().filter("vehicle.*")) == 1


def test_a_second_replay_in_another_episode_adds_no_actors(session):
    car = session.car(0)
    session.world.spawn_actor(session.blueprint("sensor.other.imu"), carla.Transform(), car)
    ids = [car.id, walker(session, 3).id]
    record(session, "again.log", 5)
    session.client.load_world("Lite01", False)
    world = session.client.get_world()
    for _ in range(2):
        session.client.replay_file("again.log", 0.0, 0.0, 0, True)
        for _ in range(8):
            world.tick()
        shown = [*world.get_actors().filter("vehicle.*"), *world.get_actors().filter("walker.*")]
        assert sorted(actor.id for actor in shown) == ids
        assert len(world.get_actors().filter("sensor.*")) == 1


@pytest.mark.parametrize("name", ["{}/x.log", "../x.log", "a/../../x.log", ""])
def test_a_path_outside_cant_be_opened_and_ends_no_program(server, session, folder, name):
    name, said = name.format(folder.parent), server.output.count("nothing is recorded: ")
    assert session.client.start_recorder(name) == ""
    session.world.tick()
    assert not (folder.parent / "x.log").exists()
    assert server.output.count("nothing is recorded: ") == said + 1


def test_a_whole_path_in_the_folder_is_the_same_recording(session, folder):
    assert session.client.start_recorder(str(folder / "night" / "whole.log")) == str(folder / "night" / "whole.log")
    session.world.tick()
    session.client.stop_recorder()
    assert "Frames: " in session.client.show_recorder_file_info("night/whole.log", False)


def test_what_makes_no_sense_is_one_sentence(session, folder):
    client = session.client
    cases = [
        (lambda: client.replay_file("/tmp/x.log", 0, 0, 0), "'/tmp/x.log' is outside the folder of recordings"),
        (lambda: client.replay_file("../x.log", 0, 0, 0), r"'\.\./x\.log' is no name of a recording"),
        (lambda: client.show_recorder_file_info("a/../../x", True), "is no name of a recording"),
        (lambda: client.show_recorder_collisions("x.log", "q", "a"), "'q' is no category of actors"),
        (lambda: client.replay_file("x.log", math.inf, 0, 0), "inf is no measure"),
    ]
    for call, why in cases:
        with pytest.raises(RuntimeError, match=why):
            call()
    for call in (client.show_recorder_file_info, client.replay_file):
        arguments = (False,) if call == client.show_recorder_file_info else (0.0, 0.0, 0)
        assert call("none.log", *arguments).endswith(f"File {folder / 'none.log'} not found on server\n")
    folder.mkdir(exist_ok=True)
    (folder / "other.log").write_bytes(b"something else")
    assert client.show_recorder_file_info("other.log", False) == "File is not a CARLA recorder\n"
    client.stop_recorder()
    client.stop_replayer(True)
    assert session.world.tick() > 0


def test_a_full_disk_ends_the_recording_and_not_the_server(start_server, connect, tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    session = connect(server := start_server(extra=("--recordings", str(tmp_path)), prelude=limit))
    session.car(0)
    session.client.start_recorder("full.log")
    session.ticks(200)
    assert "Frames: " in session.client.show_recorder_file_info("full.log", False)
    for factor in (-1.0, math.nan):
        session.client.set_replayer_time_factor(factor)
    session.client.stop_recorder()
    session.world.tick()
    log = server.output
    assert "carla-lite: the recording ends: File too large" in log
    assert log.count("a replay's time factor of ") == 2
    assert 10_000 < (tmp_path / "full.log").stat().st_size <= 20_000
    assert " s) at 1.0x\n" in session.client.replay_file("full.log", 0.0, 0.0, 0)


def test_a_recording_in_progress_outlives_its_server(start_server, connect, tmp_path):
    server = start_server(extra=("--recordings", str(tmp_path)))
    session = connect(server)
    session.car(0)
    session.client.start_recorder("killed.log")
    session.ticks(20)
    server.kill()
    again = connect(start_server(extra=("--recordings", str(tmp_path))))
    assert "\nFrames: 19\n" in again.client.show_recorder_file_info("killed.log", False)
    head = (tmp_path / "killed.log").read_bytes()[:18]
    assert head == struct.pack("<HH", 1, 14) + b"CARLA_RECORDER"
