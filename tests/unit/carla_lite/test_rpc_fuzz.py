"""Any call by the grammar of its method is answered, and the world continues: wrong types, ids, counts, NaN."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_lite.actors.actor import Actor
from carla_lite.maps import Maps
from carla_lite.methods import table
from carla_lite.methods.arguments import read_of
from carla_lite.options import WorldOptions
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.recording.folder import Folder
from carla_lite.scenery.camera import Pose
from carla_lite.world import World

BLUEPRINTS = (
    "vehicle.tesla.model3",
    "walker.pedestrian.0001",
    "static.prop.bin",
    "sensor.camera.rgb",
    "sensor.lidar.ray_cast",
    "sensor.other.radar",
    "sensor.other.imu",
    "sensor.other.obstacle",
)
TEXTS = st.sampled_from((*BLUEPRINTS, "", "Lite01", "role_name", "image_size_x", "84", "a.log", "VehicleMesh", "h"))
HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    (
        *(None, True, -1, 7, 300, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -(2**63)),
        *(math.nan, math.inf, -math.inf, 1e-300, 1e308, -1e6, "", "x" * 300, "\x00", "nan", b"", b"\xff" * 9),
        *([], [[]], [0] * 20, [[[1.0, 2.0, 3.0]] * 3], ["a", 3, "b"], [True, 1], [False]),
    )
).map(copy.deepcopy)


MOST_ACTORS = 120


class Id(NamedTuple):
    """An actor of a class, to be found in the world."""

    kind: type[Actor]
    number: int


class Heard(Streams):
    """Streams of which each has a listener, which hears nothing: every sensor measures in every tick."""

    def has_subscribers(self, _stream: int) -> bool:
        return True


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return what a program sends for a type."""
    if (read := read_of(kind)) is not None:
        wanted = kind if isinstance(kind, type) else Actor
        return st.builds(Id, st.just(wanted), st.integers(0, 99)) if read.sent is int else values(read.sent)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return st.lists(values(inner[0]), max_size=5)
    if origin is tuple:
        return st.tuples(*map(values, inner)).map(list)
    if origin is Literal:
        return st.just(inner[0])
    if inner:
        return st.one_of(*map(values, inner))
    plain = {bool: st.booleans(), int: st.integers(0, 9), float: st.floats(-100.0, 100.0), str: TEXTS}
    return plain.get(kind, HOSTILE)


NAMES = st.sampled_from(sorted(table.supported()))


@functools.cache
def grammar(name: str) -> st.SearchStrategy[Any]:
    """Return what a program sends for a method's arguments."""
    function = table._METHODS[name].function
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    return st.tuples(*(values(hints[one]) for one in names))


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Return a call by the method's grammar, of which up to two values are replaced, removed or doubled."""
    name = draw(NAMES)
    args = [*draw(grammar(name))]
    if name == "apply_batch":
        args[0] = [[[draw(st.integers(0, 22)), draw(calls())[1]]] for _ in range(draw(st.integers(0, 3)))]
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        _break(draw, args)
    return name, args


def _break(draw: st.DrawFn, args: list[Any]) -> None:
    here = args
    while inside := [each for each in here if isinstance(each, list) and each]:
        if draw(st.booleans()):
            break
        here = draw(st.sampled_from(inside))
    at = draw(st.integers(0, max(0, len(here) - 1)))
    here[at : at + 1] = draw(st.sampled_from((0, 1, 1, 1, 1, 2))) * [draw(HOSTILE)]


def found(world: World, value: Any) -> Any:
    """Return values with the ids of the world's actors."""
    if isinstance(value, Id):
        there = [each.id for each in world.actors.values() if isinstance(each, value.kind)] or [0]
        return there[-1 - value.number % len(there)]
    return [found(world, each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with listen("127.0.0.1", 0) as listener:
        recordings = Folder(tmp_path_factory.mktemp("recordings"))
        world = World(Heard(listener), Maps("Lite01"), WorldOptions(recordings=recordings))
        populate(world)
        yield world


def populate(world: World) -> None:
    for point, name in zip(world.network.spawn_points(), BLUEPRINTS, strict=False):
        small = {"image_size_x": "32", "image_size_y": "32"} if "camera" in name else {}
        world.spawn(name, small, Pose(point.x, point.y, point.z + 1.0, 0.0, point.yaw))


def test_a_call_is_answered_whatever_it_has(world: World) -> None:
    answered(world, 60)


@pytest.mark.parametrize("angle", [3.4028234663852886e38, -1.7e308, 1e6])
def test_any_finite_rotation_is_published(world: World, angle: float) -> None:
    for actor in [*world.actors.values()]:
        told = table.answer(world, "set_actor_transform", [actor.id, [[0.0, 0.0, 50.0], [angle] * 3]])
        assert b"failed in carla-lite" not in msgpack.packb(told, use_bin_type=True)
    world.tick()


@pytest.mark.parametrize("flags", [-1, 2**40 + 3])
def test_lamps_have_the_bits_that_a_recording_holds(world: World, flags: int) -> None:
    car = world.vehicles[0]
    table.answer(world, "set_vehicle_light_state", [car.id, [flags]])
    assert car.light_state == flags & 0xFFFF_FFFF


@pytest.mark.long
def test_any_call_is_answered(world: World) -> None:
    answered(world, 10_000)


def answered(world: World, examples: int) -> None:
    @given(st.lists(calls(), min_size=1, max_size=6))
    @settings(max_examples=examples, derandomize=True)
    def check(some: list[tuple[str, list[Any]]]) -> None:
        if len(world.actors) > MOST_ACTORS or not world.vehicles:
            world.load(world.network)
            populate(world)
        for name, args in some:
            given_args = found(world, args)
            reply: Any = table.answer(world, name, given_args)
            told = msgpack.packb(reply, use_bin_type=True)
            assert b"failed in carla-lite" not in told, (name, given_args, reply)
        world.tick()

    check()
