"""Traffic lights and signs as a map's OpenDRIVE file has them: where each stands, where its traffic stops, and which
lights take turns.

Owns the reading of signals, their references, controllers and a junction's order of them, with CARLA's rules for what a
file leaves out. Knows no state and no actor.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from carla_lite.roads import polyline
from carla_lite.roads.lanes import Lane, place
from carla_lite.roads.opendrive import MapError, Road, number, read_road
from carla_lite.roads.reference_line import FloatArray

# Along its lane from a junction to the middle of a stop: half its length, and what CARLA leaves before the junction.
BEFORE_JUNCTION_M = 3.0
_SAME_PLACE_M = 1.0
# CARLA moves a light so far away from its traffic (MapBuilder.cpp).
_LIGHT_AHEAD_M = 0.25
_ALL_LANES = 1 << 16
# Stop signs that are painted on the road: CARLA has no actor for them (TrafficLightManager.cpp).
_PAINTED = "Stencil_STOP"


class SignalType(Enum):
    """What CARLA makes an actor of."""

    LIGHT = "light"
    STOP = "stop"
    YIELD = "yield"
    SPEED_LIMIT = "speed_limit"


# OpenDRIVE's country codes of lights (SignalType.cpp).
_LIGHTS = ("1000001", "1000002", *map(str, range(1000007, 1000021)), "F", "W", "A")
_TYPES = dict.fromkeys(_LIGHTS, SignalType.LIGHT) | {
    "205": SignalType.YIELD,
    "206": SignalType.STOP,
    "274": SignalType.SPEED_LIMIT,
}


@dataclass(frozen=True)
class Stop:
    """Where the traffic of one lane stops: the middle of a place on it (m) and the direction of travel (rad)."""

    x: float
    y: float
    z: float
    yaw: float
    lane_width_m: float


@dataclass(frozen=True)
class Signal:
    """A light or sign in CARLA's frame, where the client's landmark is; who reads it looks along ``yaw`` (rad)."""

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
    """The lights of one junction: each controller's signal ids, in the order in which they have green."""

    controllers: tuple[tuple[str, ...], ...]
    controlled: bool = True
    """Whether the file has a controller: a light without one is a group by itself."""


@dataclass(frozen=True)
class Signals:
    """All signals of a map that CARLA has actors for, in the file's order."""

    signals: tuple[Signal, ...] = ()
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class _Reference:
    """One place where a signal holds: road, station, and the spans of lane ids."""

    road: Road
    s: float
    spans: tuple[tuple[int, int], ...]

    def has(self, lane: Lane) -> bool:
        return (
            lane.road_id == self.road.road_id
            and lane.kind == "driving"
            and any(low <= lane.lane_id <= high for low, high in self.spans)
        )


def read(name: str, xodr: str, lanes: Sequence[Lane]) -> Signals:
    """Return the signals of an OpenDRIVE text whose lanes are known; MapError if one is not what OpenDRIVE expects."""
    if "<signal" not in xodr:
        return Signals()
    root = ET.fromstring(xodr)
    elements: dict[str, tuple[Road, ET.Element]] = {}
    references: dict[str, list[_Reference]] = defaultdict(list)
    for road_element in root.iterfind("road"):
        found = [*road_element.iterfind("signals/signal"), *road_element.iterfind("signals/signalReference")]
        if not found:
            continue
        road = read_road(road_element)
        for element in found:
            try:
                references[element.attrib["id"]].append(_reference(road, element))
            except (KeyError, ValueError) as error:
                raise MapError(
                    f"map {name}, road {road.road_id}: {error} is not what OpenDRIVE 1.4 expects, export the map again"
                ) from None
            if element.tag == "signal" and element.get("type") in _TYPES and element.get("name") != _PAINTED:
                elements.setdefault(element.attrib["id"], (road, element))  # of two with one id CARLA takes the first
    try:
        signals = tuple(_signal(*elements[number], references[number], lanes) for number in elements)
        return Signals(signals, tuple(_groups(root, [one.id for one in signals if one.type is SignalType.LIGHT])))
    except ValueError as error:
        raise MapError(f"map {name}: {error} is not what OpenDRIVE 1.4 expects, export the map again") from None


def _reference(road: Road, element: ET.Element) -> _Reference:
    spans = [
        (min(ends), max(ends))
        for validity in element.iterfind("validity")
        for ends in [(int(number(validity, "fromLane")), int(number(validity, "toLane")))]
    ]
    # Without a validity CARLA's client takes the lanes whose ids have the orientation's sign (MapBuilder.cpp).
    default = {"+": (1, _ALL_LANES), "-": (-_ALL_LANES, -1)}.get(element.get("orientation", ""))
    return _Reference(road, number(element, "s"), tuple(spans) or (default or (-_ALL_LANES, _ALL_LANES),))


def _signal(road: Road, element: ET.Element, references: Sequence[_Reference], lanes: Sequence[Lane]) -> Signal:
    kind = _TYPES[element.attrib["type"]]
    s, aside = np.array([number(element, "s")]), np.array([_number(element, "t")])
    ((x, y, z),) = place(road, s, aside).tolist()
    yaw = -(float(road.line(s)[3][0]) + _number(element, "hOffset"))
    if kind is SignalType.LIGHT:
        x, y = x + _LIGHT_AHEAD_M * math.cos(yaw), y + _LIGHT_AHEAD_M * math.sin(yaw)
    return Signal(
        element.attrib["id"],
        kind,
        element.get("subtype", "") if kind is SignalType.SPEED_LIMIT else "",
        x,
        y,
        z + _number(element, "zOffset"),
        math.remainder(yaw, math.tau),
        tuple(_stops(references, lanes)),
    )


def _number(element: ET.Element, key: str) -> float:
    """Return a number attribute that may be left out."""
    return number(element, key) if key in element.attrib else 0.0


def _stops(references: Sequence[_Reference], lanes: Sequence[Lane]) -> Iterator[Stop]:
    """Yield a stop a lane: a lane in a junction stops where it comes from, before the junction."""
    stopped: set[tuple[int, int, int]] = set()
    for reference in references:
        for lane in (one for one in lanes if reference.has(one)):
            before = _before(lane, lanes) if lane.in_junction else None
            key = (before or lane).road_id, (before or lane).section, (before or lane).lane_id
            if key in stopped or (before is None and not _covers(lane, reference)):
                continue
            stopped.add(key)
            if before is not None:
                yield _stop(before, _length(before.centre) - BEFORE_JUNCTION_M)
            else:
                yield _stop(lane, _station(lane, reference) - BEFORE_JUNCTION_M)


def _before(lane: Lane, lanes: Sequence[Lane]) -> Lane | None:
    """Return the one lane outside the junction that leads into this one; None if there are several or none."""
    start = lane.centre[0]
    found = [
        one
        for one in lanes
        if one.kind == "driving" and not one.in_junction and math.dist(one.centre[-1], start) < _SAME_PLACE_M
    ]
    return found[0] if len(found) == 1 else None


def _covers(lane: Lane, reference: _Reference) -> bool:
    """Return whether the lane's section is the one at the reference's station."""
    section = reference.road.sections[lane.section]
    return section.start <= reference.s <= section.end


def _station(lane: Lane, reference: _Reference) -> float:
    """Return how far along the lane, in its direction of travel, the reference lies (m)."""
    section = reference.road.sections[lane.section]
    share = (reference.s - section.start) / (section.end - section.start)
    return _length(lane.centre) * (share if lane.lane_id < 0 else 1.0 - share)


def _stop(lane: Lane, station: float) -> Stop:
    along = polyline.along(lane.centre)
    at = min(max(station, 0.0), float(along[-1]))
    ((x, y, z),) = polyline.sampled(lane.centre, along, np.array([at])).tolist()
    end = min(max(int(np.searchsorted(along, at)), 1), len(along) - 1)
    ahead = lane.centre[end] - lane.centre[end - 1]
    return Stop(x, y, z, math.atan2(ahead[1], ahead[0]), float(np.interp(at, along, lane.width_m)))


def _length(points: FloatArray) -> float:
    return float(polyline.along(points)[-1])


def _groups(root: ET.Element, lights: Sequence[str]) -> Iterator[Group]:
    """Yield a group a junction in the order of its controllers' ``sequence``, then one for each light without any."""
    controllers = {
        controller.get("id"): tuple(
            dict.fromkeys(one.attrib["signalId"] for one in controller.iterfind("control") if "signalId" in one.attrib)
        )
        for controller in root.iterfind("controller")
    }
    taken: set[str] = set()
    for junction in root.iterfind("junction"):
        ordered = sorted(junction.iterfind("controller"), key=lambda one: _number(one, "sequence"))
        # CARLA knows one controller a light.
        turns = []
        for one in ordered:
            turn = [light for light in controllers.get(one.get("id"), ()) if light in lights and light not in taken]
            taken.update(turn)
            turns.append(tuple(turn))
        if any(turns):
            yield Group(tuple(turn for turn in turns if turn))
    yield from (Group(((light,),), controlled=False) for light in lights if light not in taken)
