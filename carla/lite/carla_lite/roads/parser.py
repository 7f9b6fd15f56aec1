"""Reads OpenDRIVE XML as the ``carla`` client does.

It uses pugixml, the client's parser, and LibCarla's rules for missing, empty or repeated parts
(LibCarla/source/carla/opendrive/parser, road/MapBuilder.cpp). Owns the reading of elements and attributes and the units
of speed. A missing attribute is 0, a number ends at the first character that isn't part of it, and roads with the same
id are one road. ``unloadable`` lists what the client doesn't survive.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

from pugixml import pugi

from carla_lite.roads.opendrive import (
    Crosswalk,
    Junction,
    LaneRecord,
    MapError,
    OpenDrive,
    Road,
    RoadMark,
    Section,
    SignalRecord,
    SignalReference,
)
from carla_lite.roads.reference_line import Geometry, Profile, ReferenceLine

Node: TypeAlias = Any
"""An element of pugixml, which has no stubs; a missing one has no children and empty attributes."""
_Cubic: TypeAlias = tuple[float, float, float, float, float]

SHAPE_ATTRIBUTES = {
    "line": "",
    "arc": "curvature",
    "spiral": "curvStart curvEnd",
    "poly3": "a b c d",
    "paramPoly3": "aU bU cU dU aV bV cV dV",
}
_KMH, _MPH = 1 / 3.6, 0.44704
_TO_MPS = {"": 1.0, "m/s": 1.0, "km/h": _KMH, "kmh": _KMH, "kph": _KMH, "mph": _MPH}
_SIDES = ("left", "center", "right")
# The part of a text that C's strtod reads.
_NUMBER = re.compile(
    r"\s*[+-]?(?:0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?\d+)?|inf(?:inity)?|nan"
    r"|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)",
    re.ASCII | re.IGNORECASE,
)
_WIDEST_MARK_M = 1.0
_MOST = {"lane": 100_000, "signal": 20_000, "signalReference": 20_000, "object": 100_000, "geometry": 200_000}
"""Most elements of a map, by name; CARLA's Town10HD has 509 lanes and 147 signals and references."""


def read(name: str, xodr: str) -> OpenDrive:
    """Return the content of an OpenDRIVE text.

    Raises:
        MapError: it isn't XML or OpenDRIVE, or has no roads.
    """
    document = pugi.XMLDocument()
    result = document.load_string(xodr)
    if not result:
        line = xodr.encode("utf-8", "replace")[: result.offset].count(b"\n") + 1
        raise MapError(
            f"map {name} is not XML ({result.description()}, line {line}): expected an OpenDRIVE file (.xodr), "
            "check what was exported"
        )
    root = document.child("OpenDRIVE")
    for element, most in _MOST.items():
        count = pugi.XPathQuery(f"count(//{element})").evaluate_number(document)
        if count > most:
            raise MapError(
                f"map {name} has {count:.0f} <{element}> elements, carla-lite holds {most}: cut it into parts"
            )
    nodes: dict[int, list[Node]] = defaultdict(list)
    for node in root.children("road"):
        nodes[node.attribute("id").as_uint()].append(node)
    if not nodes:
        raise MapError(
            f"map {name} has no roads (root element <{document.first_child().name()}>): expected <OpenDRIVE> with "
            "<road> elements, check what was exported"
        )
    try:
        roads = {road_id: _road(road_id, elements) for road_id, elements in nodes.items()}
        signals, references = _signals(root)
    except ValueError as error:
        raise MapError(f"map {name}, {error}: the carla client can't load it, export the map again") from None
    controllers = {
        _text(node, "id"): tuple(dict.fromkeys(_text(one, "signalId") for one in node.children("control")))
        for node in root.children("controller")
    }
    geo_reference = root.child("header").child_value("geoReference")
    return OpenDrive(roads, signals, references, tuple(_junctions(root)), controllers, geo_reference)


def is_number(text: str) -> bool:
    """Return whether a text begins with a number."""
    return _NUMBER.match(text) is not None


@lru_cache(maxsize=4096)  # most are 0, or a width that many lanes have
def number(text: str) -> float:
    """Return the number at the start of a text, by C's rules: 0 if there is none; "nan" and "inf" are numbers."""
    found = _NUMBER.match(text)
    if found is None:
        return 0.0
    digits = found[0].strip().lower()
    try:
        return float.fromhex(digits) if "x" in digits else float(digits)
    except OverflowError:  # only fromhex raises it
        return -math.inf if digits.startswith("-") else math.inf


def _number(node: Node, key: str) -> float:
    return number(node.attribute(key).value())


def _station(node: Node, key: str = "s") -> float:
    """Return the station at which a record begins.

    Raises:
        ValueError: it is "nan", for which the client's order of a road's records is undefined.
    """
    s = _number(node, key)
    if math.isnan(s):
        raise ValueError(f"a <{node.name()}> begins at {key}=nan, which is no station")
    return s


def _text(node: Node, key: str) -> str:
    return str(node.attribute(key).value())


def _road(road_id: int, nodes: Sequence[Node]) -> Road:
    """Return the road of all elements with this id: the attributes of the last one, and the content of all."""
    last, length = nodes[-1], _number(nodes[-1], "length")
    lanes = [node.child("lanes") for node in nodes]
    pieces = (_geometry(one) for node in nodes for one in node.child("planView").children("geometry"))
    found = [piece for piece in pieces if piece is not None]
    speeds = (
        (s, limit)
        for node in nodes
        for one in node.children("type")
        for s, limit in [(_station(one), _speed_mps(one.child("speed")))]
        if limit is not None
    )
    return Road(
        road_id=road_id,
        in_junction=last.attribute("junction").as_int() != -1,
        length=length,
        line=ReferenceLine(
            tuple(sorted(found, key=lambda piece: piece.s)),
            _profile((node.child("elevationProfile").children("elevation") for node in nodes), "s"),
        ),
        lane_offset=_profile((one.children("laneOffset") for one in lanes), "s"),
        sections=_sections(road_id, length, nodes),
        speeds=tuple(sorted(speeds)),
        junctions=(_junction(last, "predecessor"), _junction(last, "successor")),
        crosswalks=tuple(chain.from_iterable(map(_crosswalks, nodes))),
        predecessor=last.child("link").child("predecessor").attribute("elementId").as_uint(),
        successor=last.child("link").child("successor").attribute("elementId").as_uint(),
        keeps_right=_text(last, "rule") != "LHT",
    )


def _profile(groups: Iterable[Iterable[Node]], start: str) -> Profile:
    """Return the piecewise cubic of each road element's records; an element without any adds level 0 from its start."""
    return Profile.of([record for group in groups for record in (list(_cubics(group, start)) or [(0.0,) * 5])])


def _cubics(nodes: Iterable[Node], start: str) -> Iterator[_Cubic]:
    for node in nodes:
        yield (_station(node, start), *(_number(node, key) for key in "abcd"))  # type: ignore[misc]


def _geometry(node: Node) -> Geometry | None:
    """Return one piece of the plan view; None for a shape that the client ignores."""
    shape = node.first_child()
    kind = shape.name()
    if kind not in SHAPE_ATTRIBUTES:
        return None
    x, y, heading, length = (_number(node, key) for key in ("x", "y", "hdg", "length"))
    parameters = tuple(_number(shape, key) for key in SHAPE_ATTRIBUTES[kind].split())
    return Geometry(_station(node), x, y, heading, length, kind, parameters, _text(shape, "pRange") == "arcLength")


def _junction(node: Node, end: str) -> str | None:
    """Return the id of the junction at a road's "predecessor" or "successor" end, or None."""
    link = node.child("link").child(end)
    return _text(link, "elementId") if _text(link, "elementType") == "junction" else None


def _crosswalks(node: Node) -> Iterator[Crosswalk]:
    """Yield a road's crosswalks with outlines of at least three corners."""
    for found in node.child("objects").children("object"):
        if _text(found, "type") != "crosswalk":
            continue
        corners = tuple(
            (_number(one, "u"), _number(one, "v")) for one in found.child("outline").children("cornerLocal")
        )
        s, t, heading = _station(found), _number(found, "t"), _number(found, "hdg")
        if len(corners) >= 3 and all(map(math.isfinite, chain((s, t, heading), *corners))):
            yield Crosswalk(s, t, heading, corners)


@dataclass
class _Lane:
    """A lane that is collected from several elements."""

    kind: str = "none"
    predecessor: int = 0
    successor: int = 0
    widths: list[_Cubic] = field(default_factory=list)
    marks: list[RoadMark] = field(default_factory=list)
    speed_limit_mps: float | None = None

    def record(self, lane_id: int) -> LaneRecord:
        width = Profile.of(self.widths) if self.widths else None
        marks = tuple(sorted(self.marks, key=lambda mark: mark.offset))
        return LaneRecord(lane_id, self.kind, width, marks, self.speed_limit_mps, self.predecessor, self.successor)


_Open: TypeAlias = tuple[float, int, dict[int, _Lane]]
"""Start, number and lanes of a section."""


def _sections(road_id: int, length: float, nodes: Iterable[Node]) -> tuple[Section, ...]:
    """Return the lane sections with their end stations.

    Raises:
        ValueError: a section's start isn't a number, or a lane is in no section.
    """
    found: list[_Open] = []
    for node in nodes:
        for index, section in enumerate(node.child("lanes").children("laneSection")):
            start = _number(section, "s")
            if not math.isfinite(start):
                raise ValueError(f"road {road_id}: a <laneSection> starts at s={start}")
            found.append((start, index, {}))
            for lane in _lanes(section):
                one = found[-1][2].setdefault(lane.attribute("id").as_int(), _Lane())
                one.kind = _text(lane, "type").lower()
                one.predecessor = lane.child("link").child("predecessor").attribute("id").as_int()
                one.successor = lane.child("link").child("successor").attribute("id").as_int()
    found.sort(key=lambda one: one[0])
    beside = {start: list(group) for start, group in itertools.groupby(found, key=lambda one: one[0])}
    for node in nodes:
        for lanes in node.children("lanes"):
            for section in lanes.children("laneSection"):
                _describe(road_id, section, beside)
    ends = dict(itertools.pairwise([*beside, length]))
    # By its number the client finds only the first: of two roads with one id it never reads the second's.
    firsts = {index: (start, lanes) for start, index, lanes in reversed(found)}
    return tuple(
        Section(start, ends[start], tuple(lanes[key].record(key) for key in sorted(lanes)), index)
        for start, index, lanes in found
        if lanes is firsts[index][1] or start != firsts[index][0] or not lanes.keys() <= firsts[index][1].keys()
    )


def _lanes(section: Node) -> Iterator[Node]:
    return (lane for side in _SIDES for lane in section.child(side).children("lane"))


def _describe(road_id: int, section: Node, beside: Mapping[float, Sequence[_Open]]) -> None:
    """Add widths, marks and limits to the lane that the client chooses.

    That is the first section at this station that has the lane (Road::GetLaneByDistance).
    """
    s = _number(section, "s")
    # Only a second <lanes> can have no section here.
    at = s if s in beside else max((start for start in beside if start <= s), default=s)
    for node in _lanes(section):
        lane_id = node.attribute("id").as_int()
        start, lane = next(
            ((start, lanes[lane_id]) for start, _, lanes in beside.get(at, ()) if lane_id in lanes), (s, None)
        )
        if lane is None:
            raise ValueError(
                f"road {road_id}: no lane section at s={s:g} has the lane {lane_id} that <lanes> describes"
            )
        records = list(_cubics(node.children("width"), "sOffset")) or [(0.0,) * 5]
        lane.widths.extend((offset + s - start, *cubic) for offset, *cubic in records)  # type: ignore[misc]
        lane.marks.extend(map(_mark, node.children("roadMark")))
        if lane.speed_limit_mps is None:
            lane.speed_limit_mps = _speed_mps(node.child("speed"))


def _mark(node: Node) -> RoadMark:
    """Return one roadMark; without a sensible width it gets the usual one for its weight."""
    offset, width, color = _station(node, "sOffset"), _number(node, "width"), _text(node, "color").lower()
    usual = 0.25 if _text(node, "weight") == "bold" else 0.12
    return RoadMark(
        offset=offset if 0.0 <= offset < math.inf else 0.0,
        kind=_text(node, "type").lower() or "none",
        color="white" if color in ("", "standard") else color,
        width_m=width if 0.0 < width <= _WIDEST_MARK_M else usual,
    )


def _speed_mps(node: Node) -> float | None:
    """Return the limit of a <speed> in m/s; None for "no limit", "undefined", 0, and units that aren't of speed."""
    limit = _number(node, "max") * _TO_MPS.get(_text(node, "unit").strip().lower(), 0.0)
    return limit if 0.0 < limit < math.inf else None


def _signals(root: Node) -> tuple[tuple[SignalRecord, ...], tuple[SignalReference, ...]]:
    """Return all signals (of two with one id the last) and all references, in the client's order."""
    signals: dict[str, SignalRecord] = {}
    references: list[SignalReference] = []
    for road in root.children("road"):
        road_id = road.attribute("id").as_uint()
        for node in road.child("signals").children("signal"):
            at = _reference(road_id, node)
            signals[at.signal_id] = _signal(at, node, _text(node, "type"), _text(node, "subtype"), "hOffset")
            references.append(at)
        references.extend(_reference(road_id, node) for node in road.child("signals").children("signalReference"))
    for road in root.children("road"):
        for node in road.child("objects").children("object"):
            if _is_sign(node):
                at = _reference(road.attribute("id").as_uint(), node)
                signals[at.signal_id] = _signal(at, node, "", "", "hdg")
                references.append(at)
    return tuple(signals.values()), tuple(references)


def _is_sign(node: Node) -> bool:
    """Return whether an object's name says that it is a sign exported by RoadRunner (ObjectParser.cpp).

    carla-lite has no actor for it.
    """
    name = _text(node, "name")
    if _text(node, "type") == "crosswalk":
        return False
    if name[:6] in ("Speed_", "speed_"):
        limit = name[13:] if "STATIC" in name else name[6:]
        if not is_number(limit):
            raise ValueError(f"object {name!r} is a speed limit by its name, but {limit!r} is no number")
        return True
    return "Stencil_STOP" in name


def _reference(road_id: int, node: Node) -> SignalReference:
    spans = []
    for validity in node.children("validity"):
        ends = validity.attribute("fromLane").as_int(), validity.attribute("toLane").as_int()
        spans.append((min(ends), max(ends)))
    return SignalReference(_text(node, "id"), road_id, _number(node, "s"), _text(node, "orientation"), tuple(spans))


def _signal(at: SignalReference, node: Node, kind: str, subtype: str, turn: str) -> SignalRecord:
    t, up, heading = (_number(node, key) for key in ("t", "zOffset", turn))
    return SignalRecord(at, _text(node, "name"), kind, subtype, t, up if math.isfinite(up) else 0.0, heading)


def _junctions(root: Node) -> Iterator[Junction]:
    for node in root.children("junction"):
        ordered = sorted(node.children("controller"), key=lambda one: _number(one, "sequence"))
        connections = {one.attribute("id").as_uint(): one for one in reversed(list(node.children("connection")))}
        yield Junction(
            node.attribute("id").as_int(),
            tuple(one.attribute("connectingRoad").as_uint() for one in connections.values()),
            tuple(_text(one, "id") for one in ordered),
        )
