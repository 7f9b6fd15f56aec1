"""OpenDRIVE XML read into plain dataclasses, with one sentence for a person when the file cannot be read.

Owns the reading of elements and attributes and the units of speed. Samples nothing and draws no lanes.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from carla_lite.roads.reference_line import Geometry, Profile, ReferenceLine

# A road without a speed record: the limit inside towns of most countries.
DEFAULT_SPEED_MPS = 50 / 3.6
TO_MPS = {"m/s": 1.0, "": 1.0, "km/h": 1 / 3.6, "mph": 0.44704}
SHAPE_ATTRIBUTES = {
    "line": "",
    "arc": "curvature",
    "spiral": "curvStart curvEnd",
    "poly3": "a b c d",
    "paramPoly3": "aU bU cU dU aV bV cV dV",
}


class MapError(Exception):
    """A map that cannot be used; the message is one sentence for a person."""


@dataclass(frozen=True)
class RoadMark:
    """A roadMark record: valid from ``offset`` m after the start of its section until the next record."""

    offset: float
    kind: str
    color: str
    width_m: float


@dataclass(frozen=True)
class LaneRecord:
    """A lane of a section as the file says it."""

    lane_id: int
    kind: str
    width: Profile | None  # of s measured from the section's start; None for the centre lane
    border: Profile | None  # distance of the outer edge from the reference line, instead of a width
    marks: tuple[RoadMark, ...]
    speed_limit_mps: float | None


@dataclass(frozen=True)
class Section:
    """A lane section, over stations [start, end] of its road."""

    start: float
    end: float
    lanes: tuple[LaneRecord, ...]


@dataclass(frozen=True)
class Crosswalk:
    """A crosswalk object: its place on the road, its turn against the road, and its outline's (u, v) around that."""

    s: float
    t: float
    heading: float
    corners: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Road:
    """A road of the file."""

    road_id: int
    in_junction: bool
    length: float
    line: ReferenceLine
    lane_offset: Profile
    sections: tuple[Section, ...]
    speeds: tuple[tuple[float, float], ...]  # (from station, m/s), ascending
    junctions: tuple[str | None, str | None] = (None, None)
    """The junctions at its start and at its end."""
    crosswalks: tuple[Crosswalk, ...] = ()

    def speed_limit_mps(self, s: float) -> float:
        """Return the limit that holds at station s."""
        return next((speed for start, speed in reversed(self.speeds) if start <= s), DEFAULT_SPEED_MPS)


def read_roads(name: str, xodr: str) -> tuple[Road, ...]:
    """Return every road of an OpenDRIVE text; MapError if it is not XML, no OpenDRIVE, or has no roads."""
    try:
        root = ET.fromstring(xodr)
    except ET.ParseError as error:
        raise MapError(
            f"map {name} is not XML ({error}): expected an OpenDRIVE file (.xodr), check what was exported"
        ) from None
    elements = root.findall("road")
    if root.tag != "OpenDRIVE" or not elements:
        raise MapError(
            f"map {name} has no roads (root element <{root.tag}>): expected <OpenDRIVE> with <road> elements, "
            "check what was exported"
        )
    roads = []
    for element in elements:
        try:
            roads.append(read_road(element))
        except (KeyError, ValueError) as error:
            road_id = element.get("id")
            raise MapError(
                f"map {name}, road {road_id}: {error} is not what OpenDRIVE 1.4 expects, export the map again"
            ) from None
    return tuple(roads)


def read_road(element: ET.Element) -> Road:
    """Return one road; KeyError or ValueError names the attribute or element that is missing or wrong."""
    length = number(element, "length")
    pieces = tuple(read_geometry(geometry) for geometry in element.iterfind("planView/geometry"))
    lanes = element.find("lanes")
    if not pieces or lanes is None:
        raise KeyError("planView/geometry" if not pieces else "lanes")
    return Road(
        road_id=int(element.attrib["id"]),
        in_junction=element.get("junction", "-1") != "-1",
        length=length,
        line=ReferenceLine(pieces, profile(element.iterfind("elevationProfile/elevation"), "s")),
        lane_offset=profile(lanes.iterfind("laneOffset"), "s"),
        sections=tuple(read_sections(lanes, length)),
        speeds=tuple(
            (number(of_type, "s"), limit)
            for of_type in element.iterfind("type")
            for speed in of_type.iterfind("speed")
            if (limit := speed_mps(speed)) is not None
        ),
        junctions=(read_junction(element, "predecessor"), read_junction(element, "successor")),
        crosswalks=tuple(read_crosswalks(element)),
    )


def read_junction(element: ET.Element, end: str) -> str | None:
    """Return the id of the junction that a road leads to at its "predecessor" or "successor" end, or None."""
    link = element.find(f"link/{end}")
    return link.get("elementId") if link is not None and link.get("elementType") == "junction" else None


def read_crosswalks(element: ET.Element) -> Iterator[Crosswalk]:
    """Yield a road's crosswalks, those with an outline of at least three corners."""
    for found in element.iterfind("objects/object[@type='crosswalk']"):
        corners = tuple((number(one, "u"), number(one, "v")) for one in found.iterfind("outline/cornerLocal"))
        if len(corners) >= 3:
            yield Crosswalk(number(found, "s"), number(found, "t"), float(found.get("hdg", 0.0)), corners)


def read_geometry(element: ET.Element) -> Geometry:
    """Return one piece of the plan view."""
    shape = next((child for child in element if child.tag in SHAPE_ATTRIBUTES), None)
    if shape is None:
        raise KeyError("line, arc, spiral, poly3 or paramPoly3")
    x, y, heading, length = (number(element, key) for key in ("x", "y", "hdg", "length"))
    parameters = tuple(number(shape, key) for key in SHAPE_ATTRIBUTES[shape.tag].split())
    in_metres = shape.get("pRange", "normalized") == "arcLength"
    return Geometry(number(element, "s"), x, y, heading, length, shape.tag, parameters, in_metres)  # type: ignore[arg-type]


def read_sections(lanes: ET.Element, road_length: float) -> Iterator[Section]:
    """Yield the lane sections with the stations they end at."""
    elements = sorted(lanes.iterfind("laneSection"), key=lambda section: number(section, "s"))
    starts = [number(section, "s") for section in elements]
    for element, start, end in zip(elements, starts, [*starts[1:], road_length], strict=True):
        found = (lane for side in ("left", "center", "right") for lane in element.iterfind(f"{side}/lane"))
        yield Section(start, end, tuple(read_lane(lane) for lane in found))


def read_lane(element: ET.Element) -> LaneRecord:
    """Return one lane of a section; a lane with widths and borders goes by its widths, as the standard says."""
    widths, borders = element.findall("width"), element.findall("border")
    speed = element.find("speed")
    return LaneRecord(
        lane_id=int(element.attrib["id"]),
        kind=element.get("type", "none"),
        width=profile(iter(widths), "sOffset") if widths else None,
        border=profile(iter(borders), "sOffset") if borders and not widths else None,
        marks=tuple(sorted(map(read_mark, element.iterfind("roadMark")), key=lambda mark: mark.offset)),
        speed_limit_mps=None if speed is None else speed_mps(speed),
    )


def read_mark(element: ET.Element) -> RoadMark:
    """Return one roadMark; without a width it takes the usual one of its weight."""
    usual = 0.25 if element.get("weight") == "bold" else 0.12
    color = element.get("color", "standard")
    return RoadMark(
        offset=float(element.get("sOffset", 0.0)),
        kind=element.get("type", "none"),
        color="white" if color == "standard" else color,
        width_m=float(element.get("width", usual)) or usual,
    )


def speed_mps(element: ET.Element) -> float | None:
    """Return the limit of a <speed> in m/s; None for "no limit", "undefined" and zero."""
    try:
        limit = float(element.get("max", ""))
    except ValueError:
        return None
    return limit * TO_MPS[element.get("unit", "")] or None


def profile(elements: Iterator[ET.Element], start: str) -> Profile:
    """Return the piecewise cubic of elements whose attribute ``start`` says where each begins."""
    return Profile.of([tuple(number(one, key) for key in (start, "a", "b", "c", "d")) for one in elements])  # type: ignore[misc]


def number(element: ET.Element, key: str) -> float:
    """Return a number attribute; ValueError names element and attribute if it is missing or no number."""
    try:
        return float(element.attrib[key])
    except (KeyError, ValueError):
        raise ValueError(f"attribute {key}={element.get(key)!r} of <{element.tag}>") from None
