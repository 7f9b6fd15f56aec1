"""Stop and yield signs: which vehicles must wait, as in CARLA's StopSignComponent and YieldSignComponent.

Owns which vehicles are at a sign and until when they must wait. A waiting vehicle's record has the light state Red
although it is at no light: a client's Traffic Manager then stops it, and lets the vehicles before a junction drive on
one by one. Moves nothing and knows no message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from carla_lite.actors.actor import Vehicle
from carla_lite.motion.physics import Body
from carla_lite.roads.ground import HEADROOM_M
from carla_lite.roads.lanes import Lane
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.roads.signals import BEFORE_JUNCTION_M, Signal, SignalType, Stop

# How long a vehicle waits at least, and how long after the crossing lanes were last busy (s).
_STOP_S = {SignalType.STOP: 2.0, SignalType.YIELD: 0.0}
_AGAIN_S = {SignalType.STOP: 1.0, SignalType.YIELD: 0.5}
_SAME_PLACE_M, _CONFLICT_M = 1.5, 2.0
# Before the junction CARLA watches as far as traffic moves in a tenth of a second, in boxes as long as lanes are wide.
_UPSTREAM_M = 6.0
_WATCHED_SHARE = 0.45
_JUNCTION_M = 80.0  # no junction is wider


@dataclass
class GiveWaySign:
    """A sign, and the vehicles that it holds: each with the time from which it may drive on (s)."""

    signal: Signal
    network: RoadNetwork
    waiting: dict[int, float] = field(default_factory=dict)

    @cached_property
    def watched(self) -> FloatArray:
        """Points (n, 4) along the lanes that cross the sign's lanes: x, y, z and the lane's reach around them (m)."""
        lanes = [lane for lane in self.network.lanes if lane.kind == "driving"]
        inside = [lane for lane in lanes if lane.in_junction and self._is_near(lane)]
        own = [lane for stop in self.signal.stops for lane in inside if _begins_at(lane, stop)]
        roads = {before.road_id for lane in own for before in _leading_to(lane, lanes)}
        rows = [np.empty((0, 4))]
        for lane in inside:
            if lane in own or not _cross(lane, own):
                continue
            before = _leading_to(lane, lanes)
            if all(one.road_id not in roads for one in before):
                rows.append(_points(lane, math.inf))
                rows.extend(_points(one, _UPSTREAM_M) for one in before)
        return np.concatenate(rows)

    def _is_near(self, lane: Lane) -> bool:
        x, y = lane.centre[0, :2]
        return any(math.hypot(x - stop.x, y - stop.y) < _JUNCTION_M for stop in self.signal.stops)

    @cached_property
    def _span(self) -> tuple[float, ...]:
        """The middle x and y of the watched points, and how far from it along each axis the centre of a circle is that
        touches none (m), besides its radius.
        """
        places, reach = self.watched[:, :2], math.sqrt(2.0) * self.watched[:, 3].max()
        low, high = places.min(axis=0), places.max(axis=0)
        return *(0.5 * (low + high)).tolist(), *(0.5 * (high - low) + reach).tolist()

    def is_busy(self, vehicles: Sequence[Vehicle]) -> bool:
        """Return whether any vehicle is on a crossing lane, except those that wait here."""
        watched = self.watched
        if not len(watched):
            return False
        # Most vehicles are far away: only the others are held against every point.
        x, y, far_x, far_y = self._span
        return any(
            abs(vehicle.body.x - x) < far_x + vehicle.body.model.reach_m
            and abs(vehicle.body.y - y) < far_y + vehicle.body.model.reach_m
            and vehicle.id not in self.waiting
            and _touches(vehicle.body, watched)
            for vehicle in vehicles
        )


class RightOfWay:
    """The stop and yield signs of one episode."""

    def __init__(self, network: RoadNetwork) -> None:
        self.signs = [GiveWaySign(one, network) for one in network.signals.signals if one.type in _STOP_S]
        self._held: list[GiveWaySign] = []

    def advance(self, at: Mapping[int, GiveWaySign], vehicles: Sequence[Vehicle], elapsed_s: float) -> set[int]:
        """Update the vehicles that are at signs; return the ids of those that must wait."""
        if not (at or self._held):
            return set()
        for number, sign in at.items():
            sign.waiting.setdefault(number, elapsed_s + _STOP_S[sign.signal.type])
        now = list({id(sign): sign for sign in at.values()}.values())
        for sign in (*now, *self._held):
            sign.waiting = {one: until_s for one, until_s in sign.waiting.items() if at.get(one) is sign}
        self._held = now
        for sign in now:
            if sign.is_busy(vehicles):
                again_s = elapsed_s + _AGAIN_S[sign.signal.type]
                sign.waiting = {one: max(until_s, again_s) for one, until_s in sign.waiting.items()}
        return {number for number, sign in at.items() if sign.waiting[number] > elapsed_s + 1e-6}


def _begins_at(lane: Lane, stop: Stop) -> bool:
    x, y = stop.x + BEFORE_JUNCTION_M * math.cos(stop.yaw), stop.y + BEFORE_JUNCTION_M * math.sin(stop.yaw)
    return math.hypot(lane.centre[0, 0] - x, lane.centre[0, 1] - y) < _SAME_PLACE_M


def _leading_to(lane: Lane, lanes: Sequence[Lane]) -> list[Lane]:
    start = lane.centre[0]
    return [one for one in lanes if not one.in_junction and math.dist(one.centre[-1], start) < _SAME_PLACE_M]


def _cross(lane: Lane, own: Sequence[Lane]) -> bool:
    return any(
        np.hypot(*(lane.centre[:, None, :2] - one.centre[None, :, :2]).transpose(2, 0, 1)).min() < _CONFLICT_M
        for one in own
    )


def _points(lane: Lane, last_m: float) -> FloatArray:
    points = np.column_stack([lane.centre, _WATCHED_SHARE * lane.width_m])
    to_end = np.hypot(*(lane.centre[-1, :2] - lane.centre[:, :2]).T)
    chosen: FloatArray = points[to_end <= last_m]
    return chosen


def _touches(body: Body, watched: FloatArray) -> bool:
    dx, dy, dz, reach = (watched - (body.x, body.y, body.z, 0.0)).T
    c, s = math.cos(body.yaw), math.sin(body.yaw)
    along, across = np.abs(c * dx + s * dy), np.abs(c * dy - s * dx)
    near = (along < body.model.half_length_m + reach) & (across < body.model.half_width_m + reach)
    return bool((near & (np.abs(dz) < HEADROOM_M)).any())
