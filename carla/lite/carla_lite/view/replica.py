"""A copy of the world for drawing, updated from its stream: static things, actors, and the spectator's pose."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np

from carla_lite.actors.actor import KINDS, Identity, Vehicle
from carla_lite.actors.crowd import Crowd
from carla_lite.actors.props import Prop
from carla_lite.actors.sensor import TickSnapshot
from carla_lite.actors.sensors.camera import RgbCamera
from carla_lite.actors.signage import Signage
from carla_lite.actors.traffic_lights import LightState, TrafficLight
from carla_lite.actors.walkers import Walker
from carla_lite.blueprints.catalogue import find
from carla_lite.protocol import wire
from carla_lite.roads.network import RoadNetwork
from carla_lite.scenery.camera import Conditions, Pose
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.scene import Scene
from carla_lite.view.client import Rpc

WIDTH, HEIGHT = 800, 450
WEATHER_EVERY = 30
"""Frames between two queries of weather and lamps, which the stream doesn't contain."""
_RECORD = np.dtype([("id", "<u4"), ("state", "u1"), ("pose", "<f4", 6), ("rest", "V89"), ("light", "u1")])
_EPISODE = struct.Struct("<Q")


class Replica:
    """The world of one episode."""

    def __init__(self, rpc: Rpc, seed: int) -> None:
        self._rpc = rpc
        self.episode = 0
        name = str(rpc.call("get_map_info")[0]).removeprefix(wire.MAP_PREFIX)
        self.network = RoadNetwork.parse(name, rpc.call("get_map_data"))
        self.scene = Scene.build(self.network, seed)
        self._signage = Signage(self.network, itertools.count(1).__next__)
        self.frame, self.elapsed_s = 0, 0.0
        self.moving: dict[int, Vehicle | Walker | Prop] = {}
        self._crowd = Crowd()
        self.lights: list[TrafficLight] = [each for each in self._signage.signs if isinstance(each, TrafficLight)]
        self.spectator_id = int(rpc.call("get_spectator")[0])
        self.spectator = Pose(0.0, 0.0, 10.0, 0.0, 0.0, 0.0)
        """The spectator's last pose in the stream."""
        self._others: set[int] = set()
        self._weather: Daylight | None = None
        self._looks = 0
        blueprint = find("sensor.camera.rgb")
        size = {"image_size_x": str(WIDTH), "image_size_y": str(HEIGHT)}
        self._camera = RgbCamera(Identity(0, blueprint, blueprint.values(size)), self.spectator)

    def take(self, message: bytes) -> bool:
        """Apply a world message; return whether it is of this episode."""
        _, self.frame, self.elapsed_s, *_ = wire.HEADER.unpack_from(message)
        (episode,) = _EPISODE.unpack_from(message, wire.HEADER.size)
        self.episode = self.episode or episode
        if episode != self.episode:
            return False
        records = np.frombuffer(message, _RECORD, offset=wire.HEADER.size + wire.WORLD_HEAD.size)
        signs = len(self._signage.signs)
        for sign, light in zip(self._signage.signs, records["light"][:signs].tolist(), strict=False):
            if isinstance(sign, TrafficLight):
                sign.state = LightState(light)
        self._move(records[signs:])
        return True

    def _move(self, records: Any) -> None:
        ids, poses = records["id"].tolist(), records["pose"].tolist()
        self._others.intersection_update(ids)  # a replay gives ids again
        if unknown := [each for each in ids if each not in self.moving and each not in self._others]:
            self._meet(unknown)
        for gone in self.moving.keys() - set(ids):
            del self.moving[gone]
        for number, pose in zip(ids, poses, strict=True):
            if number == self.spectator_id:
                self.spectator = _pose(pose)
            elif (actor := self.moving.get(number)) is not None:
                actor.place = _pose(pose)

    def _meet(self, numbers: list[int]) -> None:
        self._others.update(numbers)
        for number, _, (_, name, values), *_ in self._rpc.call("get_actors_by_id", numbers):
            if KINDS.get(name) not in (Vehicle, Walker, Prop):
                continue
            identity = Identity(number, find(name), {attribute: value for attribute, _, value in values})
            actor = KINDS[name](identity, Pose(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
            assert isinstance(actor, Vehicle | Walker | Prop)
            self.moving[number] = actor

    def picture(self, pose: Pose) -> Any:
        """Return a camera's picture from this pose, (height, width, 3) BGR."""
        if self._looks % WEATHER_EVERY == 0 or self._weather is None:
            self._weather = Daylight.of(self._rpc.call("get_weather_parameters"))
            for number, flags in self._rpc.call("get_vehicle_light_states"):
                vehicle = self.moving.get(number)
                if isinstance(vehicle, Vehicle) and vehicle.light_state != flags:
                    vehicle.switch_lights(flags, self.elapsed_s)
        self._looks += 1
        vehicles = [actor for actor in self.moving.values() if isinstance(actor, Vehicle)]
        walkers = [actor for actor in self.moving.values() if isinstance(actor, Walker)]
        props = [actor for actor in self.moving.values() if isinstance(actor, Prop)]
        self._crowd.hold(walkers)
        snapshot = TickSnapshot(
            self.frame,
            self.elapsed_s,
            self.scene,
            self.network.geo_reference,
            Conditions(self._weather, ()),
            vehicles,
            walkers,
            self._crowd,
            props,
            (),
            self._signage,
        )
        self._camera.place = pose
        ((_, _, pixels),) = self._camera.messages(snapshot)
        return np.frombuffer(pixels, np.uint8).reshape(HEIGHT, WIDTH, 4)[:, :, :3]

    def send_spectator(self, pose: Pose) -> None:
        """Move the spectator, for every client."""
        angles = [math.degrees(pose.pitch), math.degrees(pose.yaw), math.degrees(pose.roll)]
        self._rpc.call("set_actor_transform", self.spectator_id, [[pose.x, pose.y, pose.z], angles])


def _pose(values: list[float]) -> Pose:
    x, y, z, pitch, yaw, roll = values
    return Pose(x, y, z, math.radians(pitch), math.radians(yaw), math.radians(roll))
