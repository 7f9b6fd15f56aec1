"""All traffic lights and signs of a world: made from its map, advanced by its ticks, found by place.

Owns their part of the world message, which light or sign a vehicle is at, and which signs a camera can see.
``traffic_lights`` owns each light's state, ``right_of_way`` which vehicles must wait at a sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from carla_lite.actors.actor import Identity, Vehicle
from carla_lite.actors.right_of_way import GiveWaySign, RightOfWay
from carla_lite.actors.stops import Stops
from carla_lite.actors.traffic_lights import Group, TrafficLight, TrafficSign
from carla_lite.blueprints.blueprint import Blueprint
from carla_lite.protocol import wire
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.signals import Signal, SignalType
from carla_lite.scenery.sign_faces import SignFace

_RECORD_BYTES = wire.LIGHT_RECORD.size
# Side of the square for which nearby signs are looked up once.
_SIGHT_CELL_M, _KEPT_CELLS = 10.0, 256

# CityObjectLabels (protocol, section 3.5).
_TAG_POLE, _TAG_LIGHT, _TAG_SIGN = 6, 7, 8


class Signage:
    """The signs of one episode. Their ids are the episode's first, in the map's order."""

    def __init__(self, network: RoadNetwork, new_id: Callable[[], int]) -> None:
        self.signs: list[TrafficSign] = [
            _sign(signal, new_id(), network.height(signal.x, signal.y, signal.z), index)
            for index, signal in enumerate(network.signals.signals)
        ]
        lights = {sign.signal.id: sign for sign in self.signs if isinstance(sign, TrafficLight)}
        self.groups = [
            Group([[lights[one] for one in turn] for turn in group.controllers], group.controlled)
            for group in network.signals.groups
        ]
        self.records = bytearray(_RECORD_BYTES * len(self.signs))
        """The signs' records in the world message."""
        self._offsets = {sign.id: _RECORD_BYTES * index for index, sign in enumerate(self.signs)}
        self._stops: Stops[TrafficLight | GiveWaySign] = Stops()
        self._right_of_way = RightOfWay(network)
        self._near: dict[tuple[float, float, float], list[TrafficSign]] = {}
        self.hidden: frozenset[int] = frozenset()
        """Ids of the signs that a client has hidden."""
        for sign in self.signs:
            sign.record(self.records, self._offsets[sign.id])
        holding: list[TrafficLight | GiveWaySign] = [*lights.values(), *self._right_of_way.signs]
        for owner in holding:
            for stop in owner.signal.stops:
                self._stops.add(owner, stop)

    @property
    def shown(self) -> list[TrafficSign]:
        """The signs that aren't hidden."""
        return [sign for sign in self.signs if sign.id not in self.hidden]

    def advance(self, delta_s: float) -> None:
        """Advance the lights' cycles."""
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
        """Update the records of a group's lights after any change other than time."""
        for light in group.lights:
            light.record(self.records, self._offsets[light.id])

    def tell(self, vehicles: Sequence[Vehicle], elapsed_s: float) -> None:
        """Tell each vehicle which light it is at, and whether a stop or yield sign makes it wait."""
        at: dict[int, GiveWaySign] = {}
        for vehicle in vehicles:
            before = self._stops.at(vehicle.body)
            vehicle.light, vehicle.gives_way = None, False
            if isinstance(before, TrafficLight):
                vehicle.light = before.id, before.state
            elif before is not None:
                at[vehicle.id] = before
        waiting = self._right_of_way.advance(at, vehicles, elapsed_s)
        for vehicle in vehicles if waiting else ():
            vehicle.gives_way = vehicle.id in waiting

    def faces(self, x: float, y: float, reach_m: float) -> list[SignFace]:
        """Return the faces of the signs within ``reach_m`` of a place, and of some beyond."""
        cell = x // _SIGHT_CELL_M, y // _SIGHT_CELL_M, reach_m
        near = self._near.get(cell)
        if near is None:
            middle = (cell[0] + 0.5) * _SIGHT_CELL_M, (cell[1] + 0.5) * _SIGHT_CELL_M
            reach_m += 0.71 * _SIGHT_CELL_M
            near = [sign for sign in self.signs if math.dist(middle, (sign.signal.x, sign.signal.y)) < reach_m]
            self._near[cell] = near
            if len(self._near) > _KEPT_CELLS:
                del self._near[next(iter(self._near))]
        hidden = self.hidden
        return [sign.face for sign in near if sign.id not in hidden] if hidden else [sign.face for sign in near]


def _sign(signal: Signal, number: int, ground_m: float, index: int) -> TrafficSign:
    if signal.type is SignalType.LIGHT:
        blueprint = Blueprint("traffic.traffic_light", semantic_tags=(_TAG_POLE, _TAG_LIGHT))
        return TrafficLight(Identity(number, blueprint, {}), signal, ground_m, index)
    name = f"speed_limit.{signal.limit}" if signal.type is SignalType.SPEED_LIMIT else signal.type.value
    blueprint = Blueprint(f"traffic.{name}", semantic_tags=(_TAG_POLE, _TAG_SIGN))
    return TrafficSign(Identity(number, blueprint, {}), signal, ground_m)
