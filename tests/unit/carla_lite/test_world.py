"""A world's ticks without a client: what is published, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from carla_lite.maps import Maps
from carla_lite.options import WorldOptions
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import NO_ROOM, RpcError
from carla_lite.scenery.camera import Pose
from carla_lite.world import World


class Published(Streams):
    """Streams with a listener each, which record every message."""

    def publish(self, stream: int, _parts: object) -> None:
        self.order.append(stream)

    def has_subscribers(self, _stream: int) -> bool:
        return True

    order: list[int]


@pytest.fixture
def streams() -> Iterator[Published]:
    with listen("127.0.0.1", 0) as listener:
        streams = Published(listener)
        streams.order = []
        yield streams


@pytest.mark.parametrize("cameras", [0, 1, 2])
def test_the_worlds_message_comes_before_those_of_its_sensors(streams: Published, cameras: int):
    # As CARLA's: who looks at an actor when an image comes finds that frame's state, not the last one's.
    world = World(streams, Maps("Lite01"))
    for _ in range(cameras):
        world.spawn("sensor.camera.rgb", {"image_size_x": "8"}, Pose(0.0, 0.0, 2.0))
    world.spawn("sensor.other.collision", {}, Pose(0.0, 0.0, 2.0))
    world.tick()
    assert streams.order == [world.stream, *(sensor.stream for sensor in world.sensors[:cameras])]


def test_a_strict_world_has_room_at_every_spawn_point(streams: Published):
    world = World(streams, Maps("Lite01"), WorldOptions(strict=True))
    for point in world.network.spawn_points()[::10]:
        bus = world.spawn("vehicle.mitsubishi.fusorosa", {}, Pose(point.x, point.y, point.z, 0.0, point.yaw))
        assert world.destroy(bus.id)
        on_the_road = Pose(point.x, point.y, world.network.height(point.x, point.y), 0.0, point.yaw)
        with pytest.raises(RpcError, match=NO_ROOM):
            world.spawn("vehicle.mitsubishi.fusorosa", {}, on_the_road)


def test_a_camera_sees_who_is_left_by_this_ticks_replay(streams: Published, monkeypatch: pytest.MonkeyPatch):
    world = World(streams, Maps("Lite01"))
    at = world.network.spawn_points()[0]
    world.spawn("sensor.camera.rgb", {}, Pose(at.x, at.y, at.z + 2.0, 0.0, at.yaw))
    there = [(at.x + ahead * math.cos(at.yaw), at.y + ahead * math.sin(at.yaw)) for ahead in (4.0, 7.0)]
    gone, _ = [world.spawn("walker.pedestrian.0001", {}, Pose(x, y, at.z + 1.0)) for x, y in there]
    world.tick()
    replay = SimpleNamespace(active=True, tick=lambda *_: world.destroy(gone.id), leave_episode=lambda: None)
    monkeypatch.setattr(world, "_studio", replay)
    streams.order.clear()
    world.tick()
    assert streams.order == [world.stream, world.sensors[0].stream]
