"""Faults of an OpenDRIVE file with which the ``carla`` client ends or raises, one sentence each.

The client fails while it builds its map or lists its waypoints. Owns the rules, which are LibCarla's
(road/MapBuilder.cpp, Map.cpp, Lane.cpp of 0.9.16): null pointers that it follows, and its assertions. Lanes whose
coordinates aren't numbers are found when they are sampled (``network``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator

from carla_lite.roads.opendrive import Junction, LaneRecord, OpenDrive, Road, Section

# The client keeps its waypoints this far from a lane's end (10 EPSILON of Map.cpp), m.
_STEP_M = 100 * sys.float_info.epsilon
# Kinds of cubics, which are tabulated.
_LONGEST_CUBIC_M = 1e6
# The client ignores lanes of other types (RoadParser.cpp): it makes no waypoint there.
_TYPES = frozenset(
    [
        "driving",
        "stop",
        "shoulder",
        "biking",
        "sidewalk",
        "border",
        "restricted",
        "parking",
        "bidirectional",
        "median",
        "special1",
        "special2",
        "special3",
        "roadworks",
        "tram",
        "rail",
        "entry",
        "exit",
        "offramp",
        "onramp",
    ]
)


def faults(drive: OpenDrive) -> Iterator[str]:
    """Yield each fault that the client wouldn't survive, as a sentence."""
    junctions = {junction.junction_id: junction for junction in drive.junctions}
    yield from _connections(drive)
    for road in drive.roads.values():
        yield from _links(road, drive, junctions)
    yield from _signals(drive)
    for road in drive.roads.values():
        for section in road.sections:
            yield from _section(road, section)
        if road.sections:
            yield from _shapes(road)
    yield from _controllers(drive)


def _connections(drive: OpenDrive) -> Iterator[str]:
    for junction in drive.junctions:
        for road_id in junction.connecting_roads:
            if road_id not in drive.roads:
                yield f"junction {junction.junction_id}: its connecting road {road_id} does not exist"


def _links(road: Road, drive: OpenDrive, junctions: dict[int, Junction]) -> Iterator[str]:
    """Yield the lanes whose successor, or predecessor against the road, is missing (MapBuilder::GetLaneNext)."""
    numbers: set[int] = set()
    for index, section in enumerate(road.sections):
        where = f"road {road.road_id}, lane section at s={section.start:g}"
        if section.number in numbers:
            yield f"{where}: another road has the same id and other lanes"
            return
        numbers.add(section.number)
        for lane in section.lanes:
            targets = _next_lanes(road, index, lane, drive, junctions)
            if None in targets:
                yield f"{where}: the lane that its lane {lane.lane_id} leads to does not exist"
            elif lane.kind == "driving" and lane.lane_id:
                yield from (
                    f"{where}: lane {lane.lane_id} leads to lane {found.lane_id}, beside which one is missing"
                    for there, found in filter(None, targets)
                    if not _has_inner(there, found)
                )


def _next_lanes(
    road: Road, index: int, lane: LaneRecord, drive: OpenDrive, junctions: dict[int, Junction]
) -> list[tuple[Section, LaneRecord] | None]:
    """Return the lanes that a lane of the road's section ``index`` leads to; None for each that is missing."""
    along, here = road.runs_along(lane.lane_id), road.sections[index].start
    wanted = lane.successor if along else lane.predecessor
    other_id = road.successor if along else road.predecessor
    if road.sections[-1].start > here if along else here > 0:
        others = road.sections[index + 1 :] if along else road.sections[:index][::-1]
        return [_first((one for one in others if one.start != here), wanted)] if wanted or not lane.lane_id else []
    if other_id in drive.roads:
        other = drive.roads[other_id]
        ordered = other.sections if other.runs_along(wanted) else other.sections[::-1]
        return [_first(ordered, wanted)] if wanted or not lane.lane_id else []
    junction = junctions.get(other_id - (1 << 32) if other_id >= 1 << 31 else other_id)
    return [] if junction is None else list(_in_junction(junction, road.road_id, lane.lane_id, drive))


def _first(sections: Iterable[Section], lane_id: int) -> tuple[Section, LaneRecord] | None:
    found = ((section, section.lane(lane_id)) for section in sections)
    return next(((section, lane) for section, lane in found if lane is not None), None)


def _in_junction(
    junction: Junction, road_id: int, lane_id: int, drive: OpenDrive
) -> Iterator[tuple[Section, LaneRecord] | None]:
    """Yield the lanes of connecting roads that name this lane as their end (MapBuilder::GetJunctionLanes)."""
    for connecting in (drive.roads[one] for one in junction.connecting_roads if one in drive.roads):
        if not connecting.sections:
            continue
        for end, section, linked in (
            (connecting.predecessor, connecting.sections[0], "predecessor"),
            (connecting.successor, connecting.sections[-1], "successor"),
        ):
            if end == road_id:
                yield from ((section, one) for one in section.lanes if getattr(one, linked) == lane_id)


def _has_inner(section: Section, lane: LaneRecord) -> bool:
    """Return whether the next lane towards the centre exists: its road mark is the waypoint's left one."""
    return not lane.lane_id or section.lane(lane.lane_id - int(math.copysign(1, lane.lane_id))) is not None


def _section(road: Road, section: Section) -> Iterator[str]:
    where = f"road {road.road_id}, lane section at s={section.start:g}"
    seen = [lane for lane in section.lanes if lane.lane_id and lane.kind in _TYPES]
    if not seen:
        return
    along = any(road.runs_along(lane.lane_id) for lane in seen)
    first = section.start + _STEP_M
    if not (section.start >= 0 and section.end <= road.length and (first <= road.length or not along)):
        yield f"{where}: it is not within the road, whose length is {road.length:g}"
    if not road.line.pieces or road.line.pieces[0].s > section.start:
        yield f"{where}: no <geometry> of the planView with a line, arc, spiral, poly3 or paramPoly3 is there"
    if road.lane_offset.starts[0] > first:
        yield f"{where}: the first <laneOffset> begins only at s={road.lane_offset.starts[0]:g}"
    if road.line.elevation.starts[0] > first:
        yield f"{where}: the first <elevation> begins only at s={road.line.elevation.starts[0]:g}"
    outermost = {side: max((one.lane_id * side for one in seen), default=0) for side in (1, -1)}
    for lane in section.lanes:
        needed = bool(lane.lane_id) and abs(lane.lane_id) <= outermost[1 if lane.lane_id > 0 else -1]
        if needed and (lane.width is None or lane.width.starts[0] > _STEP_M):
            yield f"{where}: lane {lane.lane_id} has no <width> at its start"
        if lane.kind == "driving" and not _has_inner(section, lane):
            yield f"{where}: between its lane {lane.lane_id} and the centre a lane is missing"


def _shapes(road: Road) -> Iterator[str]:
    """Yield the pieces that the client would tabulate for ever, or with a NaN (Geometry.cpp)."""
    pieces = road.line.pieces
    ends = [*(piece.s for piece in pieces[1:]), math.inf]
    for piece, end in zip(pieces, ends, strict=True):
        where = f"road {road.road_id}, <geometry> at s={piece.s:g}"
        if not piece.s < min(road.length, end):
            continue
        if piece.kind == "arc" and piece.parameters[0] == 0.0:
            yield f"{where}: an <arc> has the curvature 0, expected a <line>"
        if piece.kind == "spiral" and (piece.parameters[0] == piece.parameters[1] or not piece.length):
            yield f"{where}: a <spiral> has one curvature or no length, expected an <arc>"
        if piece.kind in ("poly3", "paramPoly3") and not 0.0 < piece.length <= _LONGEST_CUBIC_M:
            yield f"{where}: a <{piece.kind}> is {piece.length:g} m long"


def _signals(drive: OpenDrive) -> Iterator[str]:
    known = {signal.at.signal_id for signal in drive.signals}
    for reference in drive.references:
        where = f"road {reference.road_id}, signal {reference.signal_id!r}"
        if not reference.s >= 0.0:
            yield f"{where}: it stands at s={reference.s:g}, expected a station from 0"
        if reference.signal_id not in known and (not reference.spans or any(any(span) for span in reference.spans)):
            yield f"{where}: no <signal> has this id"
    for signal in drive.signals:
        if not math.isfinite(signal.t + (signal.turn if signal.is_light else 0.0)):
            yield f"road {signal.at.road_id}, signal {signal.at.signal_id!r}: t={signal.t}, hOffset={signal.turn}"
        line = drive.roads[signal.at.road_id].line
        if not line.pieces or line.pieces[0].s > signal.at.s or line.elevation.starts[0] > signal.at.s:
            yield f"road {signal.at.road_id}, signal {signal.at.signal_id!r}: no <geometry> or <elevation> is there"


def _controllers(drive: OpenDrive) -> Iterator[str]:
    known = {reference.signal_id for reference in drive.references}
    for junction in drive.junctions:
        for controller in junction.controllers:
            for signal in drive.controllers.get(controller, ()):
                if signal not in known:
                    where = f"junction {junction.junction_id}, controller {controller!r}"
                    yield f"{where}: its signal {signal!r} does not exist"
