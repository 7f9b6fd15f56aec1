"""Files of CARLA's recorder: made by hand from the documented layout, from records and back, and broken on purpose."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.maps import Maps
from carla_lite.options import WorldOptions
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import RpcError
from carla_lite.recording import layout, queries, records, replayer
from carla_lite.recording.folder import Folder
from carla_lite.recording.layout import LAYOUTS, Packet, RecordingError
from carla_lite.recording.reading import Recording
from carla_lite.recording.writing import Writer
from carla_lite.scenery.projection import Pose
from carla_lite.world import World

CAR = "vehicle.tesla.model3"
OFFSET = Pose(-10.0, 0.0, 5.0)


def text(value: str) -> bytes:
    return struct.pack("<H", len(value)) + value.encode()


def header(
    version: int = 1, magic: str = "CARLA_RECORDER", map_name: str = "Lite01", date: int = 1_550_742_380
) -> bytes:
    return struct.pack("<H", version) + text(magic) + struct.pack("<q", date) + text(map_name)


def packet(number: int, payload: bytes = b"", size: int | None = None) -> bytes:
    return struct.pack("<BI", number, len(payload) if size is None else size) + payload


def start(number: int, duration: float, elapsed: float) -> bytes:
    return packet(0, struct.pack("<Qdd", number, duration, elapsed))


def counted(*records: bytes, count: int | None = None) -> bytes:
    return struct.pack("<H", len(records) if count is None else count) + b"".join(records)


def added(number: int, kind: int, name: str, x: float = 0.0, y: float = 0.0, **attributes: str) -> bytes:
    values = b"".join(struct.pack("<B", 3) + text(key) + text(value) for key, value in attributes.items())
    place = struct.pack("<IB6f", number, kind, x, y, 30.0, 0.0, 0.0, 90.0)
    return place + struct.pack("<I", 7) + text(name) + struct.pack("<H", len(attributes)) + values


def position(number: int, x: float, y: float, yaw: float = 0.0) -> bytes:
    return struct.pack("<I6f", number, x, y, 30.0, 0.0, 0.0, yaw)


def by_hand_physics() -> bytes:
    head = struct.pack("<I5f?7f", 4040, 5000.0, 1.0, 0.15, 2.0, 0.35, True, 10.0, 4.0, 1845.0, 0.3, 0.5, 0.0, -0.25)
    lists = (((0.0, 400.0), (5000.0, 300.0)), ((1.0, 0.5, 0.65),), ((0.0, 1.0),), ((3.5,) * 9 + (1.0, 2.0, 3.0),))
    return head + b"".join(
        struct.pack("<I", len(rows)) + b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows) for rows in lists
    )


def by_hand() -> bytes:
    """Return a recording as CARLA 0.9.15's sources lay it out: a hero hits a wall, a car stands, one leaves."""
    hero = added(4040, 1, CAR, 1000.0, 2000.0, role_name="hero", color="255,0,0")
    first = [
        packet(20, struct.pack("<d", 12.5)),
        packet(2, counted(added(1, 0, "spectator"), hero, added(4041, 1, "vehicle.audi.tt", 5000.0))),
        packet(3, counted()),
        packet(4, counted()),
        packet(5, counted()),
        packet(6, counted(position(1, 0.0, 0.0), position(4040, 1000.0, 2000.0, 170.0), position(4041, 5000.0, 0.0))),
        packet(7, counted(struct.pack("<I?fb", 3, True, 1.25, 2))),
        packet(8, counted(struct.pack("<I3f?i", 4040, 0.25, 0.5, 0.0, False, 1))),
        packet(10, counted(struct.pack("<II", 4040, 1 | 2))),
        packet(
            21, counted(struct.pack("<II", 4040, 4) + b"".join(struct.pack("<Bff", i, 20.0, 5.0) for i in range(4)))
        ),
        packet(22, counted()),
        packet(23, counted(struct.pack("<IB?", 4040, 4, True))),
        packet(9, counted(struct.pack("<If", 50, 1.5))),
        packet(11, counted(struct.pack("<i5f?B", 9, 10.0, 0.5, 0.25, 1.0, 1.0, True, 2))),
        packet(24, counted(struct.pack("<14f", *range(14)))),
        packet(12, counted(struct.pack("<I6f", 4040, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0))),
        packet(13, counted(struct.pack("<I6f", 4040, 0.0, 0.0, 75.0, 239.5, 108.25, 74.5))),
        packet(17, counted(struct.pack("<I6f", 3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0))),
        packet(14, struct.pack("<d", 0.125)),
        packet(15, counted(by_hand_physics())),
        packet(16, counted(struct.pack("<I3f", 3, 10.0, 3.0, 2.0))),
        packet(18, struct.pack("<Q", 77)),
        packet(19, counted(struct.pack("<IH", 50, 1) + text("crl_root") + struct.pack("<6f", 0, 0, 1.5, 0, 0, 90))),
        packet(200, b"of a program's own"),
    ]
    second = [
        packet(5, counted(struct.pack("<III??", 0, 4040, 0xFFFFFFFF, True, False))),
        packet(6, counted(position(4040, 1100.0, 2000.0, -170.0), position(4041, 5000.0, 0.0))),
    ]
    third = [
        packet(3, counted(struct.pack("<I", 4041))),
        packet(5, counted(struct.pack("<III??", 1, 4040, 0xFFFFFFFF, True, False))),
        packet(6, counted(position(4040, 1300.0, 2000.0, -170.0))),
    ]
    frames = ((1, 40.0, 0.0, first), (2, 2.5, 40.0, second), (3, -1.0, 42.5, third))
    return header() + b"".join(
        start(number, lasts, at) + b"".join(packets) + packet(1) for number, lasts, at, packets in frames
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "by-hand.log"
        path.write_bytes(data)
        return path

    return write


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with listen("127.0.0.1", 0) as listener:
        folder = Folder(tmp_path_factory.mktemp("recordings"))
        yield World(Streams(listener), Maps("Lite01"), WorldOptions(recordings=folder))


def test_a_file_by_hand_is_told_as_carla_would(write, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    with Recording(write(by_hand())) as recording:
        told = queries.file_info(recording, False)
    date = told.splitlines()[2]
    assert re.fullmatch(r"Date: \d\d/\d\d/19 \d\d:\d\d:20", date)
    assert told.replace(date, "DATE") == (
        "Version: 1\nMap: Lite01\nDATE\n\n"
        "Frame 1 at 0 seconds\n"
        " Create 1: spectator (0) at (0, 0, 30)\n"
        " Create 4040: vehicle.tesla.model3 (1) at (1000, 2000, 30)\n  role_name = hero\n  color = 255,0,0\n"
        " Create 4041: vehicle.audi.tt (1) at (5000, 0, 30)\n"
        " Weathers: 1\n  Cloudiness: 0 Precipitation: 1 PrecipitationDeposits: 2 WindIntensity: 3 SunAzimuthAngle: 4 "
        "SunAltitudeAngle: 5 FogDensity: 6 FogDistance: 7 FogFalloff: 8 Wetness: 9 ScatteringIntensity: 10 "
        "MieScatteringScale: 11 RayleighScatteringScale: 12 DustStorm: 13\n"
        "Frame 2 at 40 seconds\n Collision id 0 between 4040 (hero)  with 4294967295\n"
        "Frame 3 at 42.5 seconds\n Destroy 4041\n Collision id 1 between 4040 (hero)  with 4294967295\n"
        "\nFrames: 3\nDuration: 42.5 seconds\n"
    )


def test_all_of_a_file_by_hand_is_told(write):
    with Recording(write(by_hand())) as recording:
        told = queries.file_info(recording, True)
    for line in (
        " Positions: 3\n  Id: 1 Location: (0, 0, 30) Rotation: (0, 0, 0)\n",
        " State traffic lights: 1\n  Id: 3 state: 2 frozen: 1 elapsedTime: 1.25\n",
        " Walker animations: 1\n  Id: 50 speed: 1.5\n",
        " Vehicle door animations: 1\n  Id: 4040\n  Doors opened:  Hood \n",
        " Scene light changes: 1\n  Id: 9 enabled: True intensity: 10 RGB_color: (0.5, 0.25, 1)\n",
        " Weathers: 1\n  Cloudiness: 0 Precipitation: 1 PrecipitationDeposits: 2 WindIntensity: 3 SunAzimuthAngle: 4 ",
        " Dynamic actors: 1\n  Id: 4040 linear_velocity: (1, 2, 3) angular_velocity: (4, 5, 6)\n",
        " Actor bounding boxes: 1\n  Id: 4040 origin: (0, 0, 75) extension: (239.5, 108.25, 74.5)\n",
        " Actor trigger volumes: 1\n  Id: 3 origin: (1, 2, 3) extension: (4, 5, 6)\n",
        " Current platform time: 0.125\n",
        " Physics Control events: 1\n  Id: 4040\n   max_rpm = 5000\n   MOI = 1\n   damping_rate_full_throttle = 0.15\n",
        "   use_gear_auto_box = true\n   gear_switch_time = 0\n   clutch_strength = 10\n   final_ratio = 4\n",
        "   mass = 1845\n   drag_coefficient = 0.3\n   center_of_mass = (0.5, 0, -0.25)\n",
        "   torque_curve = (0, 400) (5000, 300)\n   steering_curve = (0, 1)\n   forward_gears:\n"
        "    gear 0: ratio 1 down_ratio 0.5 up_ratio 0.65\n   wheels:\n    wheel 0: tire_friction 3.5 damping_rate 3.5 "
        "max_steer_angle 3.5 radius 3.5 max_brake_torque 3.5 max_handbrake_torque 3.5 position (1, 2, 3)\n",
        " Traffic Light time events: 1\n  Id: 3 green_time: 10 yellow_time: 3 red_time: 2\n",
        ' Walkers Bones: 1\n  Id: 50\n     Bone: "crl_root" relative: Loc(0, 0, 1.5) Rot(0, 0, 90)\n\n',
        " Vehicle animations: 1\n  Id: 4040 Steering: 0.25 Throttle: 0.5 Brake: 0 Handbrake: 0 Gear: 1\n",
        " Vehicle light animations: 1\n  Id: 4040 Position LowBeam\n",
    ):
        assert line in told


@pytest.mark.parametrize(
    ("first", "second", "rows"), [("a", "a", 1), ("h", "o", 1), ("v", "o", 1), ("v", "v", 0), ("w", "a", 0)]
)
def test_collisions_by_category(write, first, second, rows):
    with Recording(write(by_hand())) as recording:
        told = queries.collisions(recording, first, second).split("\n\n", 1)[1]
    head = "    Time  Types     Id Actor 1                                 Id Actor 2                            \n"
    row = f"      40   v o    4040 {CAR:<35} 4294967295 {'':<35}\n"
    duration = "42" if rows else "42.5"
    assert told == f"{head}{row * rows}\nFrames: 3\nDuration: {duration} seconds\n"


@pytest.mark.parametrize(
    ("time_s", "distance_cm", "ids"),
    [(2, 10, ["4041"]), (2, 500, ["1", "4040", "4041"]), (30, 500, ["1"]), (41, 500, [])],
)
def test_blocked_actors_by_time_and_distance(write, time_s, distance_cm, ids):
    with Recording(write(by_hand())) as recording:
        rows = queries.actors_blocked(recording, time_s, distance_cm).split("\n\n")[1].splitlines()
    assert rows[0] == "    Time     Id Actor                                 Duration"
    assert [row.split()[1] for row in rows[1:]] == ids


def test_a_file_by_hand_is_replayed(world, write):
    path = write(by_hand())
    (world.recorder._folder.path / "by-hand.log").write_bytes(path.read_bytes())
    told = world.recorder.replay("by-hand.log", 0.0, 0.0, 4040, False, OFFSET)
    assert told.splitlines()[1:] == ["Total time recorded: 42.5", "Replaying from 0 s - 42.5 s (42.5 s) at 1.0x"]
    world.tick()
    hero = world.actors[4040]
    assert (hero.blueprint.id, hero.attributes["color"], hero.pose.x) == (CAR, "255,0,0", pytest.approx(10.0))
    assert (hero.body.control.throttle, hero.light_state, hero.body.simulate_physics) == (0.5, 3, False)
    assert world.spectator.pose.x == pytest.approx(10.0 - 10.0 * -0.98480775, abs=1e-4)
    world.recorder.options.time_factor = 1.9
    while world.actors[4040].pose.x < 10.5:
        world.tick()
    # Halfway from frame 1 to 2 the yaw has come halfway the shorter way round.
    assert abs(world.actors[4040].pose.yaw) == pytest.approx(3.1416, abs=0.05)
    world.recorder.options.time_factor = 1.0
    world.recorder.stop_replaying(keep_actors=False)
    assert (4040 in world.actors, 4041 in world.actors) == (True, False)
    assert world.actors[4040].body.simulate_physics


ordinary = st.floats(width=32, allow_nan=False, allow_infinity=False)
of_kind = {int: st.integers(0, 100), bool: st.booleans(), float: ordinary, str: st.text(max_size=20)}
names: dict[str, st.SearchStrategy[list[Any]]] = {
    "attributes": st.lists(
        st.builds(records.Attribute, st.integers(0, 255), st.text(max_size=9), st.text(max_size=9)), max_size=3
    ),
    "bones": st.lists(st.builds(records.Bone, st.text(max_size=9), *[ordinary] * 6), max_size=4),
    "wheels": st.lists(st.builds(records.Wheel, st.integers(0, 3), ordinary, ordinary), max_size=4),
}
RECORDS: dict[Packet, type[Any]] = {
    Packet.EVENT_ADD: records.Added,
    Packet.EVENT_DEL: records.Removed,
    Packet.EVENT_PARENT: records.Parented,
    Packet.COLLISION: records.Collided,
    Packet.POSITION: records.Position,
    Packet.STATE: records.LightState,
    Packet.ANIM_VEHICLE: records.VehicleControl,
    Packet.ANIM_WALKER: records.WalkerSpeed,
    Packet.VEHICLE_LIGHT: records.Lamps,
    Packet.SCENE_LIGHT: records.SceneLight,
    Packet.KINEMATICS: records.Motion,
    Packet.BOUNDING_BOX: records.Box,
    Packet.TRAFFIC_LIGHT_TIME: records.LightTimes,
    Packet.TRIGGER_VOLUME: records.Box,
    Packet.WALKER_BONES: records.Bones,
    Packet.WHEELS: records.Wheels,
    Packet.BIKER: records.Biker,
    Packet.DOOR: records.Door,
    Packet.WEATHER: records.Weather,
}


def records_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    fields = [
        of_kind[hint] if hint in of_kind else names[name].map(tuple) for name, hint in get_type_hints(kind).items()
    ]
    return st.builds(kind, *fields)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.name)
def test_records_come_back_as_they_were_written(kind):
    @settings(max_examples=20)
    @given(st.lists(records_of(RECORDS[kind]), max_size=2))
    def check(written):
        payload = LAYOUTS[kind].write(written)
        assert LAYOUTS[kind].read(payload) == written
        assert layout.packet_of(kind, payload) is kind or not written

    check()


def test_an_actor_with_long_texts_is_recorded_and_read():
    blueprint = max(CATALOGUE.values(), key=lambda each: len(each.attributes))
    values = tuple(records.Attribute(3, each.id, "é" * 70_000) for each in blueprint.attributes)
    one = records.Added(5, 1, *(0.0,) * 6, 7, blueprint.id, values)
    (read,) = LAYOUTS[Packet.EVENT_ADD].read(LAYOUTS[Packet.EVENT_ADD].write([one]))
    assert [each.id for each in read.attributes] == [each.id for each in values]
    assert read.attributes[0].value.startswith("é" * 400)


def test_physics_comes_back_as_it_was_written():
    figures = records.Physics._make(
        (7, *[1.5] * 5, True, *[2.5] * 7, [(0.0, 500.0)], [(4.0, 0.5, 0.75)], [], [(1.0,) * 12])
    )
    assert LAYOUTS[Packet.PHYSICS_CONTROL].read(LAYOUTS[Packet.PHYSICS_CONTROL].write([figures])) == [figures]


@pytest.mark.parametrize(("number", "kind"), [(21, Packet.DOOR), (22, Packet.WHEELS), (23, Packet.BIKER)])
def test_packets_of_the_version_between_are_known_by_their_size(number, kind):
    one = {
        Packet.DOOR: records.Door(1, 2, True),
        Packet.WHEELS: records.Wheels(1, (records.Wheel(0, 1.0, 2.0),)),
        Packet.BIKER: records.Biker(1, 2.0, 0.5),
    }
    assert layout.packet_of(number, LAYOUTS[kind].write([one[kind]] * 3)) is kind


def one_frame(*packets: bytes) -> bytes:
    return header() + start(1, -1.0, 0.0) + b"".join(packets) + packet(1)


NAN = float("nan")
BROKEN = {
    "empty": (b"", "it ends within the header"),
    "another file": (b"PK\x03\x04" + bytes(100), "doesn't begin with CARLA_RECORDER"),
    "wrong magic": (header(magic="CARLA_RECORDED"), "doesn't begin with CARLA_RECORDER"),
    "header alone": (header(), "no whole frame"),
    "a first frame without an end": (header() + start(1, 0.0, 0.0), "no whole frame"),
    "a first frame of number 0": (header() + start(0, 0.0, 0.0) + packet(1), None),
    "more records than bytes": (one_frame(packet(6, counted(count=65535))), "POSITION: 65535 records"),
    "a packet of 4 GB": (one_frame() + packet(2, b"", 0xFFFFFFFF), None),
    "a string longer than its packet": (one_frame(packet(2, counted(added(1, 0, "x")[:-4], count=1))), "EVENT_ADD"),
    "a place that is none": (one_frame(packet(6, counted(position(1, NAN, 0.0)))), "POSITION: a number is"),
    "a place off every map": (one_frame(packet(6, counted(position(1, 1e12, 0.0)))), "actor 1 is 1e"),
    "a time that is none": (header() + start(1, 0.0, NAN) + packet(1), "frame 1 is at nan s"),
    "a time that goes back": (one_frame() + start(2, 1.0, -1.0) + packet(1), "frame 2 is at -1"),
    "a start too short": (header() + packet(0, b"abc"), "frame's start has 3 bytes"),
    "too few bytes for a count": (one_frame(packet(7, b"x")), "STATE: 1 bytes are too few"),
    "a control that is none": (
        one_frame(packet(8, counted(struct.pack("<I3f?i", 1, NAN, 0.0, 0.0, False, 0)))),
        "ANIM_VEHICLE: a number is",
    ),
    "an actor of 128 kB": (
        one_frame(packet(2, counted(added(1, 0, "x", a="b" * 65_000, c="d" * 65_000)))),
        "EVENT_ADD: actor 1 has 1300",
    ),
    "wheels without end": (one_frame(packet(21, counted(struct.pack("<II", 1, 0xFFFFFFFF)))), "WHEELS: 38654705655"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_sentence(world, case):
    data, why = BROKEN[case]
    (world.recorder._folder.path / "broken.log").write_bytes(data)
    if why is None:
        assert "Replaying from" in world.recorder.replay("broken.log", 0.0, 0.0, 0, False, OFFSET)
        return
    with pytest.raises(RpcError, match=re.escape(why)):
        world.recorder.replay("broken.log", 0.0, 0.0, 0, False, OFFSET)
    world.tick()


def test_a_file_that_ends_within_a_frame_is_read_up_to_it(world):
    data = by_hand()
    (world.recorder._folder.path / "torn.log").write_bytes(data[: len(data) - 12])
    told = world.recorder.replay("torn.log", 0.0, 0.0, 0, False, OFFSET)
    assert "Total time recorded: 40\n" in told
    assert "The file ends within frame 3" in told
    assert "The file ends within frame 3" in world.recorder.tell("torn.log", lambda it: queries.file_info(it, False))


def test_a_packet_larger_than_any_frame_is_not_read(world):
    path = world.recorder._folder.path / "large.log"
    path.write_bytes(header() + start(1, -1.0, 0.0) + packet(6, b"", 1 << 30))
    os.truncate(path, 1 << 31)
    with pytest.raises(RpcError, match="a packet has 1073741824 bytes"):
        world.recorder.replay("large.log", 0.0, 0.0, 0, False, OFFSET)
    path.unlink()


def test_a_replay_whose_file_breaks_lets_its_actors_go(world, capsys):
    path = world.recorder._folder.path / "breaks.log"
    car = packet(2, counted(added(2_000_000, 1, CAR, 1000.0)))
    stands = packet(6, counted(position(2_000_000, 1000.0, 0.0)))
    frames = [start(number, 0.05, 0.05 * number) + stands + packet(1) for number in range(1, 2000)]
    path.write_bytes(header() + start(0, 0.05, 0.0) + car + stands + packet(1) + b"".join(frames))
    world.recorder.replay("breaks.log", 0.0, 0.0, 0, False, OFFSET)
    world.tick()
    actor = world.vehicles[-1]
    assert not actor.body.simulate_physics
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(5000))
    for _ in range(1500):
        world.tick()
    assert "the replay ends: " in capsys.readouterr().out
    assert actor.body.simulate_physics
    world.destroy(actor.id)


def test_parents_in_a_circle_are_refused(world):
    props = [added(number, 0, "static.prop.constructioncone", 100.0 * number) for number in (900_001, 900_002)]
    circle = counted(
        struct.pack("<II", 900_001, 900_002), struct.pack("<II", 900_002, 900_001), struct.pack("<II", 900_001, 900_001)
    )
    places = counted(position(900_001, 0.0, 0.0), position(900_002, 0.0, 0.0))
    (world.recorder._folder.path / "circle.log").write_bytes(
        one_frame(packet(2, counted(*props)), packet(4, circle), packet(6, places))
    )
    world.recorder.replay("circle.log", 0.0, 0.0, 0, False, OFFSET)
    world.tick()
    one, two = (world.actors[number] for number in (900_001, 900_002))
    assert one.hangs_on(two) != two.hangs_on(one)


@given(st.data())
def test_no_change_of_a_file_ends_the_world(world, data):
    content = bytearray(by_hand())
    for _ in range(data.draw(st.integers(1, 6), "changes")):
        at = data.draw(st.integers(0, len(content) - 1), "at")
        kind = data.draw(st.sampled_from(["byte", "cut", "insert", "repeat"]), "kind")
        if kind == "byte":
            content[at] = data.draw(st.integers(0, 255), "byte")
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 64), "bytes")]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=16), "inserted")
        else:
            content[at:at] = content[at : at + 200]
        if not content:
            return
    (world.recorder._folder.path / "fuzzed.log").write_bytes(content)
    for call in (
        lambda: world.recorder.tell("fuzzed.log", lambda it: queries.file_info(it, True)),
        lambda: world.recorder.tell("fuzzed.log", lambda it: queries.collisions(it, "a", "a")),
        lambda: world.recorder.tell("fuzzed.log", lambda it: queries.actors_blocked(it, 0.0, 1e9)),
        lambda: world.recorder.replay("fuzzed.log", 0.0, 0.0, 4040, True, OFFSET),
    ):
        with contextlib.suppress(RpcError):
            assert isinstance(call(), str)
    world.recorder.options.time_factor = 100.0
    for _ in range(3):
        world.tick()
    world.recorder.stop_replaying(keep_actors=False)
    for number in list(world.actors):
        world.destroy(number)


NAMES = [
    "",
    "/etc/passwd",
    "../up.log",
    "a/../../b.log",
    "..\\up.log",
    "\\share\\x",
    "C:/x.log",
    "a\0b",
    ".",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    folder = Folder(tmp_path / "recordings")
    for use in (folder.path_of, folder.begin):
        with pytest.raises(RpcError, match=r"recording|can't"):
            use(name)


def test_links_out_and_what_is_no_recording_stay_as_they_are(tmp_path):
    folder = Folder(tmp_path / "recordings")
    assert folder.begin("runs/a.log")[0] == tmp_path / "recordings" / "runs" / "a.log"
    (tmp_path / "mine.txt").write_text("mine")
    (folder.path / "link.log").symlink_to(tmp_path / "mine.txt")
    (folder.path / "notes.log").write_text("notes")
    os.mkfifo(folder.path / "pipe.log")
    for name, why in (
        ("link.log", "outside the folder"),
        ("notes.log", "replace a file"),
        ("pipe.log", "no file"),
        ("x" * 300, "no name"),
    ):
        with pytest.raises(RpcError, match=why):
            folder.begin(name)


def test_all_recordings_together_have_a_limit(tmp_path):
    folder = Folder(tmp_path, 1000)
    (tmp_path / "old.log").write_bytes(header() + bytes(600))
    _, most = folder.begin("new.log")
    assert 300 < most < 400
    writer = Writer(tmp_path / "new.log", "Lite01", most)
    positions = {Packet.POSITION: [records.Position(1, *[0.0] * 6)] * 5}
    writer.add(0.05, positions)
    writer.add(0.05, positions)
    with pytest.raises(RecordingError, match="full"):
        writer.add(0.05, positions)
    writer.abandon()
    with Recording(tmp_path / "new.log") as recording:
        assert replayer.check(recording).total_s == 0.0
        assert recording.torn_in == 0
    (tmp_path / "more.log").write_bytes(bytes(1000))
    with pytest.raises(RpcError, match="raise --recordings-mib"):
        folder.begin("third.log")
