"""Traffic lights and signs of a map's OpenDRIVE file: their places, stop areas, and which lights take turns.

Owns the meaning of signals, their references, controllers and a junction's order of them, with CARLA's rules for
missing parts. Reads no XML, knows no state and no actor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from carla_lite.roads import polyline
from carla_lite.roads.lanes import Lane, place
from carla_lite.roads.opendrive import FARTHEST_M, LIGHT_TYPES, OpenDrive, Road, Section, SignalRecord, SignalReference
from carla_lite.roads.reference_line import FloatArray

# Along its lane from a junction to the centre of a stop area: half its length, plus CARLA's distance before the
# junction.
BEFORE_JUNCTION_M = 3.0
_SAME_PLACE_M = 1.0
# CARLA moves a light this far away from its traffic (MapBuilder.cpp).
_LIGHT_AHEAD_M = 0.25
_ALL_LANES = 1 << 16
# Stop signs painted on the road: CARLA has no actor for them (TrafficLightManager.cpp).
_PAINTED = "Stencil_STOP"


class SignalType(Enum):
    """Signals for which CARLA makes an actor."""

    LIGHT = "light"
    STOP = "stop"
    YIELD = "yield"
    SPEED_LIMIT = "speed_limit"


_TYPES = dict.fromkeys(LIGHT_TYPES, SignalType.LIGHT) | {
    "205": SignalType.YIELD,
    "206": SignalType.STOP,
    "274": SignalType.SPEED_LIMIT,
}


@dataclass(frozen=True)
class Stop:
    """Stop area of one lane: its centre (m) and the direction of travel (rad)."""

    x: float
    y: float
    z: float
    yaw: float
    lane_width_m: float


@dataclass(frozen=True)
class Signal:
    """A light or sign in CARLA's frame, at the client's landmark; its traffic looks along ``yaw`` (rad)."""

    id: str
    type: SignalType
    limit: str
    """The number on a speed limit sign, otherwise empty."""
    x: float
    y: float
    z: float
    yaw: float
    stops: tuple[Stop, ...]


@dataclass(frozen=True)
class Group:
    """The lights of one junction: each controller's signal ids, in the order of their green phases."""

    controllers: tuple[tuple[str, ...], ...]
    controlled: bool = True
    """Whether the file has a controller; a light without one is a group by itself."""


@dataclass(frozen=True)
class Signals:
    """All signals of a map for which CARLA has actors, in the file's order."""

    signals: tuple[Signal, ...] = ()
    groups: tuple[Group, ...] = ()


def read(drive: OpenDrive, lanes: Sequence[Lane]) -> Signals:
    """Return a file's signals, given its lanes; signals further away than any map are left out."""
    places: dict[str, list[SignalReference]] = defaultdict(list)
    for reference in drive.references:
        places[reference.signal_id].append(reference)
    driven = _Driven(lanes)
    signals = (
        _signal(drive.roads, record, places[record.at.signal_id], driven)
        for record in drive.signals
        # CARLA makes no actor for painted signs.
        if record.type in _TYPES and record.name != _PAINTED
    )
    near = tuple(one for one in signals if max(abs(one.x), abs(one.y), abs(one.z)) <= FARTHEST_M)
    return Signals(near, tuple(_groups(drive, [one.id for one in near if one.type is SignalType.LIGHT])))


class _Driven:
    """The lanes that cars drive on."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        driven = [lane for lane in lanes if lane.kind == "driving"]
        self._outside = [lane for lane in driven if not lane.in_junction]
        self._ends = [lane.centre[-1].tolist() for lane in self._outside]
        self._of_road: dict[int, list[Lane]] = defaultdict(list)
        for lane in driven:
            self._of_road[lane.road_id].append(lane)

    def of(self, reference: SignalReference) -> Iterator[Lane]:
        """Yield the lanes for which a signal holds."""
        # Without a validity CARLA's client takes the lanes whose ids have the orientation's sign (MapBuilder.cpp).
        default = {"+": (1, _ALL_LANES), "-": (-_ALL_LANES, -1)}.get(reference.orientation, (-_ALL_LANES, _ALL_LANES))
        for lane in self._of_road.get(reference.road_id, ()):
            if any(low <= lane.lane_id <= high for low, high in reference.spans or (default,)):
                yield lane

    def before(self, lane: Lane) -> Lane | None:
        """Return the one lane outside the junction that leads into this one; None if there are several or none."""
        start = lane.centre[0].tolist()
        found = [
            one for one, end in zip(self._outside, self._ends, strict=True) if math.dist(end, start) < _SAME_PLACE_M
        ]
        return found[0] if len(found) == 1 else None


def _signal(
    roads: Mapping[int, Road], record: SignalRecord, places: Sequence[SignalReference], driven: _Driven
) -> Signal:
    kind, road = _TYPES[record.type], roads[record.at.road_id]
    s, aside = np.array([min(record.at.s, road.length)]), np.array([record.t])
    ((x, y, z),) = place(road, s, aside).tolist()
    # A sign whose angle isn't a number is set along the road; such a light would end the client.
    yaw = -(float(road.line(s)[3][0]) + (record.turn if math.isfinite(record.turn) else 0.0))
    if kind is SignalType.LIGHT:
        x, y = x + _LIGHT_AHEAD_M * math.cos(yaw), y + _LIGHT_AHEAD_M * math.sin(yaw)
    return Signal(
        record.at.signal_id,
        kind,
        record.subtype if kind is SignalType.SPEED_LIMIT else "",
        x,
        y,
        z + record.z_offset,
        math.remainder(yaw, math.tau),
        tuple(_stops(roads, places, driven)),
    )


def _stops(roads: Mapping[int, Road], references: Sequence[SignalReference], driven: _Driven) -> Iterator[Stop]:
    """Yield a stop a lane: a lane in a junction stops where it comes from, before the junction."""
    stopped: set[tuple[int, int, int]] = set()
    for reference in references:
        for lane in driven.of(reference):
            before = driven.before(lane) if lane.in_junction else None
            key = (before or lane).road_id, (before or lane).section, (before or lane).lane_id
            section = roads[lane.road_id].numbered[lane.section]
            if key in stopped or (before is None and not section.start <= reference.s <= section.end):
                continue
            stopped.add(key)
            if before is not None:
                yield _stop(before, _length(before.centre) - BEFORE_JUNCTION_M)
            else:
                yield _stop(lane, _station(lane, section, reference.s) - BEFORE_JUNCTION_M)


def _station(lane: Lane, section: Section, s: float) -> float:
    """Return the distance of a station along the lane in its direction of travel (m)."""
    share = (s - section.start) / (section.end - section.start)
    return _length(lane.centre) * (share if lane.along else 1.0 - share)


def _stop(lane: Lane, station: float) -> Stop:
    along = polyline.along(lane.centre)
    at = min(max(station, 0.0), float(along[-1]))
    ((x, y, z),) = polyline.sampled(lane.centre, along, np.array([at])).tolist()
    end = min(max(int(np.searchsorted(along, at)), 1), len(along) - 1)
    ahead = lane.centre[end] - lane.centre[end - 1]
    return Stop(x, y, z, math.atan2(ahead[1], ahead[0]), float(np.interp(at, along, lane.width_m)))


def _length(points: FloatArray) -> float:
    return float(polyline.along(points)[-1])


def _groups(drive: OpenDrive, lights: Sequence[str]) -> Iterator[Group]:
    """Yield one group per junction, in the order of its controllers' ``sequence``, then one per light without one."""
    taken: set[str] = set()
    for junction in drive.junctions:
        # CARLA knows one controller per light.
        turns = []
        for controller in junction.controllers:
            turn = [light for light in drive.controllers.get(controller, ()) if light in lights and light not in taken]
            taken.update(turn)
            turns.append(tuple(turn))
        if any(turns):
            yield Group(tuple(turn for turn in turns if turn))
    yield from (Group(((light,),), controlled=False) for light in lights if light not in taken)
