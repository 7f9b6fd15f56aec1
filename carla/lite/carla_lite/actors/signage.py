"""All traffic lights and signs of a world: made from its map, moved on by its ticks, found by place.

Owns their part of the world message, which light a vehicle is at, and which signs a camera can see. Each light's own
state lives in ``traffic_lights``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carla_lite.actors.actor import Identity
from carla_lite.actors.traffic_lights import (
    STOP_HEIGHT_M,
    STOP_LENGTH_M,
    STOP_SHARE,
    Group,
    TrafficLight,
    TrafficSign,
)
from carla_lite.blueprints.catalogue import Blueprint
from carla_lite.motion.collisions import overlaps
from carla_lite.motion.physics import Body
from carla_lite.protocol import wire
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.signals import Signal, SignalType
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.sign_faces import SignFace

_RECORD_BYTES = wire.LIGHT_RECORD.size
# A vehicle is looked up by the cell of its middle: a stop is listed in every cell from which a long one reaches it.
_CELL_M, _REACH_M = 4.0, 7.5
# Of which the signs near to a camera are looked up once.
_SIGHT_CELL_M, _KEPT_CELLS = 10.0, 256

# CityObjectLabels (protocol, section 3.5).
_TAG_POLE, _TAG_LIGHT, _TAG_SIGN = 6, 7, 8


@dataclass(frozen=True)
class _Place:
    """Where a vehicle is at a light."""

    light: TrafficLight
    pose: Pose
    extent: tuple[float, float, float]


class Signage:
    """The signs of one episode. Their ids come first in it and follow the map's order."""

    def __init__(self, network: RoadNetwork, new_id: Callable[[], int]) -> None:
        self.signs: list[TrafficSign] = [
            _sign(signal, new_id(), network.height(signal.x, signal.y), index)
            for index, signal in enumerate(network.signals.signals)
        ]
        lights = {sign.signal.id: sign for sign in self.signs if isinstance(sign, TrafficLight)}
        self.groups = [
            Group([[lights[one] for one in turn] for turn in group.controllers], group.controlled)
            for group in network.signals.groups
        ]
        self.records = bytearray(_RECORD_BYTES * len(self.signs))
        """The signs' part of the world message."""
        self._offsets = {sign.id: _RECORD_BYTES * index for index, sign in enumerate(self.signs)}
        self._places: dict[tuple[float, float], list[_Place]] = defaultdict(list)
        self._near: dict[tuple[float, float, float], list[TrafficSign]] = {}
        for sign in self.signs:
            self._enter(sign)
            sign.record(self.records, self._offsets[sign.id])

    def advance(self, delta_s: float) -> None:
        """Let the lights' cycles go on."""
        for group in self.groups:
            moved = group.advance(delta_s)
            if moved is None:
                continue
            if moved.elapsed_s == 0.0:  # the state changed, and perhaps the turn
                self.publish(group)
                continue
            for light in moved.lights:
                at = self._offsets[light.id] + wire.LIGHT_ELAPSED_AT
                wire.LIGHT_ELAPSED.pack_into(self.records, at, moved.elapsed_s)

    def publish(self, group: Group) -> None:
        """Bring the records of a group's lights up to date, after anything but time has changed them."""
        for light in group.lights:
            light.record(self.records, self._offsets[light.id])

    def light_at(self, body: Body) -> TrafficLight | None:
        """Return the light before which a vehicle stands or drives.

        One that comes out of the junction beside it and cuts the corner isn't before it, though it touches the place.
        """
        for place in self._places.get((body.x // _CELL_M, body.y // _CELL_M), ()):
            near = abs(body.x - place.pose.x) < _REACH_M and abs(body.y - place.pose.y) < _REACH_M
            if near and math.cos(body.yaw - place.pose.yaw) > 0.0 and overlaps(body, place.pose, place.extent):
                return place.light
        return None

    def faces(self, x: float, y: float, reach_m: float) -> list[SignFace]:
        """Return what is to be seen of the signs within ``reach_m`` of a place, and of some beyond."""
        cell = x // _SIGHT_CELL_M, y // _SIGHT_CELL_M, reach_m
        near = self._near.get(cell)
        if near is None:
            middle = (cell[0] + 0.5) * _SIGHT_CELL_M, (cell[1] + 0.5) * _SIGHT_CELL_M
            reach_m += 0.71 * _SIGHT_CELL_M
            near = [sign for sign in self.signs if math.dist(middle, (sign.signal.x, sign.signal.y)) < reach_m]
            self._near[cell] = near
            if len(self._near) > _KEPT_CELLS:
                del self._near[next(iter(self._near))]
        return [sign.face for sign in near]

    def _enter(self, sign: TrafficSign) -> None:
        if not isinstance(sign, TrafficLight):
            return
        for stop in sign.signal.stops:
            extent = STOP_LENGTH_M, STOP_SHARE * stop.lane_width_m, STOP_HEIGHT_M
            place = _Place(sign, Pose(stop.x, stop.y, stop.z, 0.0, stop.yaw), extent)
            for cell in _cells(stop.x, stop.y):
                self._places[cell].append(place)


def _sign(signal: Signal, number: int, ground_m: float, index: int) -> TrafficSign:
    if signal.type is SignalType.LIGHT:
        blueprint = Blueprint("traffic.traffic_light", semantic_tags=(_TAG_POLE, _TAG_LIGHT))
        return TrafficLight(Identity(number, blueprint, {}), signal, ground_m, index)
    name = f"speed_limit.{signal.limit}" if signal.type is SignalType.SPEED_LIMIT else signal.type.value
    blueprint = Blueprint(f"traffic.{name}", semantic_tags=(_TAG_POLE, _TAG_SIGN))
    return TrafficSign(Identity(number, blueprint, {}), signal, ground_m)


def _cells(x: float, y: float) -> Iterator[tuple[float, float]]:
    """Yield the cells from whose places a vehicle reaches this one."""
    for column in range(math.floor((x - _REACH_M) / _CELL_M), math.floor((x + _REACH_M) / _CELL_M) + 1):
        for row in range(math.floor((y - _REACH_M) / _CELL_M), math.floor((y + _REACH_M) / _CELL_M) + 1):
            yield float(column), float(row)
