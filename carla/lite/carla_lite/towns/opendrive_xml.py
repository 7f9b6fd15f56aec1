"""OpenDRIVE elements: a road with its plan view and its lane sections, lanes with their widths and painted lines.

Owns tags, attributes and the format of numbers. Decides nothing about a town.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from carla_lite.towns.geometry import Piece

LINE_M, KERB_M = 0.125, 0.15


@dataclass(frozen=True)
class Mark:
    """A painted line, or a kerb, at the outer edge of a lane, from ``start`` metres on."""

    kind: str
    color: str = "white"
    start: float = 0.0
    lane_change: str = "none"


@dataclass(frozen=True)
class LaneSpec:
    """A lane to write; ``links`` are the ids of the lanes before and after it, if known."""

    lane_id: int
    kind: str
    width_m: float | None = None
    marks: tuple[Mark, ...] = ()
    links: dict[str, int] = field(default_factory=dict)


def road_element(
    attributes: dict[str, str], line: Sequence[Piece], links: dict[str, dict[str, str]], kmh: int
) -> ET.Element:
    """Return a flat road along lines and arcs, without lanes."""
    road = ET.Element("road", {"length": metres(sum(piece.length for piece in line))} | attributes)
    link = ET.SubElement(road, "link")
    for tag, target in links.items():
        ET.SubElement(link, tag, target)
    of_type = ET.SubElement(road, "type", s="0", type="town")
    ET.SubElement(of_type, "speed", max=str(kmh), unit="km/h")
    plan_view = ET.SubElement(road, "planView")
    s = 0.0
    for piece in line:
        plan_view.append(geometry_element(piece, s))
        s += piece.length
    elevation = ET.SubElement(road, "elevationProfile")
    ET.SubElement(elevation, "elevation", cubic("s", 0.0))
    return road


def geometry_element(piece: Piece, s: float) -> ET.Element:
    """Return one line or arc that begins at station s."""
    place = {"s": s, "x": piece.start.real, "y": piece.start.imag, "hdg": piece.heading, "length": piece.length}
    geometry = ET.Element("geometry", {key: metres(value) for key, value in place.items()})
    if piece.curvature:
        ET.SubElement(geometry, "arc", curvature=metres(piece.curvature))
    else:
        ET.SubElement(geometry, "line")
    return geometry


def add_lanes(road: ET.Element, specs: Sequence[LaneSpec], offset_m: float = 0.0, line: Sequence[Piece] = ()) -> None:
    """Add the lanes of a road, from left to right; ``offset_m`` moves lane 0 to the left of the line.

    Each piece of ``line`` begins a lane section. CARLA's client looks lanes up by chords of up to 100 m and 1.8°, which
    end with a section. A chord from a straight line into a bend of 300 m radius was up to 0.6 m beside the lane
    (``get_waypoint``, lane invasions). In tight bends, 1.8° is reached soon.
    """
    lanes = ET.SubElement(road, "lanes")
    ET.SubElement(lanes, "laneOffset", cubic("s", offset_m))
    ordered = sorted(specs, key=lambda spec: -spec.lane_id)
    starts = [0.0, *accumulate(piece.length for piece in line[:-1])]
    for number, start in enumerate(starts):
        section = ET.SubElement(lanes, "laneSection", s=metres(start))
        end = starts[number + 1] if number + 1 < len(starts) else math.inf
        inner = [tag for tag, is_inside in (("predecessor", number), ("successor", end < math.inf)) if is_inside]
        for side, sign in (("left", 1), ("center", 0), ("right", -1)):
            mine = [spec for spec in ordered if (spec.lane_id > 0) - (spec.lane_id < 0) == sign]
            if mine:
                ET.SubElement(section, side).extend([lane_element(between(spec, start, end, inner)) for spec in mine])


def between(spec: LaneSpec, start: float, end: float, inner: Sequence[str]) -> LaneSpec:
    """Return the part of a lane from ``start`` to ``end``, linked with its other parts as ``inner`` says."""
    ends = [*(mark.start for mark in spec.marks[1:]), math.inf]
    marks = tuple(
        replace(mark, start=max(0.0, mark.start - start))
        for mark, over in zip(spec.marks, ends, strict=False)
        if mark.start < end and over > start
    )
    return replace(spec, marks=marks, links=spec.links | {tag: spec.lane_id for tag in inner if spec.lane_id})


def lane_element(spec: LaneSpec) -> ET.Element:
    """Return a lane; if it has no mark that is written, too, as in CARLA's maps."""
    lane = ET.Element("lane", id=str(spec.lane_id), type=spec.kind, level="false")
    if spec.links:
        link = ET.SubElement(lane, "link")
        for tag, lane_id in spec.links.items():
            ET.SubElement(link, tag, id=str(lane_id))
    if spec.width_m is not None:
        ET.SubElement(lane, "width", cubic("sOffset", spec.width_m))
    for mark in spec.marks or (Mark("none"),):
        look = {"sOffset": metres(mark.start), "type": mark.kind, "material": "standard", "color": mark.color}
        width = KERB_M if mark.kind == "curb" else LINE_M
        ET.SubElement(lane, "roadMark", look | {"width": metres(width), "laneChange": mark.lane_change})
    return lane


def cubic(start: str, constant: float) -> dict[str, str]:
    """Return the attributes of a constant cubic from its start on."""
    return {start: "0", "a": metres(constant), "b": "0", "c": "0", "d": "0"}


def metres(value: float) -> str:
    """Return a number with nine decimals: far below a micrometre, and the same text on every machine."""
    return f"{value:.9f}".rstrip("0").rstrip(".") if abs(value) >= 5e-10 else "0"
