"""Lanes and painted lines as sampled polylines in CARLA's frame, made from the roads of an OpenDRIVE file.

Owns the conversion from OpenDRIVE's frame (y to the left) to CARLA's (y to the right), and the direction of travel:
with right-hand traffic a lane with a negative id runs along its road, one with a positive id against it. Reads no XML.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from carla_lite.roads.opendrive import LaneRecord, Road, RoadMark, Section
from carla_lite.roads.reference_line import FloatArray

# Shorter sections and thinner lanes are artefacts of an export; they have no direction, or no surface.
MIN_LENGTH_M = 1e-3
MIN_WIDTH_M = 1e-2

SINGLE_LINES = {"solid": "solid", "broken": "broken", "curb": "curb", "botts dots": "broken"}


@dataclass(frozen=True, eq=False)
class Marking:
    """A painted or raised line; ``kind`` is "solid", "broken" or "curb" (a double line is two markings).

    Compared by identity, like Lane, since == of two arrays isn't a single truth value.
    """

    points: FloatArray  # (n, 3), m
    kind: str
    color: str
    width_m: float


@dataclass(frozen=True, eq=False)
class Lane:
    """One lane of one section. All its polylines have n points in the direction of travel, in CARLA's frame."""

    road_id: int
    section: int  # its number in the file
    lane_id: int
    kind: str  # OpenDRIVE's type: "driving", "sidewalk", "shoulder" …
    in_junction: bool
    centre: FloatArray  # (n, 3), m
    left: FloatArray  # (n, 3), the left edge in the direction of travel
    right: FloatArray  # (n, 3)
    width_m: FloatArray  # (n,)
    speed_limit_mps: float
    along: bool = True
    """Whether it runs in the direction of its road's stations."""


def lanes_of(road: Road, step_m: float) -> Iterator[Lane]:
    """Yield the lanes of a road, sampled at most ``step_m`` apart and at both ends of each section."""
    for section in road.sections if road.line.pieces else ():
        if not section.end - section.start >= MIN_LENGTH_M:
            continue
        s = stations(section.start, section.end, step_m)
        line = Line.of(road, s)
        for record, inner, outer in offsets(road, section, s):
            if record.lane_id:
                limit = record.speed_limit_mps or road.speed_limit_mps(float(s[0] + s[-1]) / 2)
                yield lane_of(road, section.number, record, line, (inner, outer), limit)


def is_wide(lane: Lane) -> bool:
    """Return whether a lane has a surface."""
    return bool(lane.width_m.max() >= MIN_WIDTH_M)


class Line(NamedTuple):
    """A road's reference line at n stations."""

    x: FloatArray
    y: FloatArray
    z: FloatArray
    cos: FloatArray
    sin: FloatArray

    @classmethod
    def of(cls, road: Road, s: FloatArray) -> Line:
        """Return the line at stations s (n,)."""
        x, y, z, heading = road.line(s)
        heading = heading.astype(np.float32).astype(np.float64)  # as the client's DirectedPoint::ApplyLateralOffset
        return cls(x, y, z, np.cos(heading), np.sin(heading))

    def beside(self, offset: FloatArray) -> FloatArray:
        """Return points (n, 3) in CARLA's frame at lateral offsets (n,) from the line."""
        # The flip of y between the two frames happens here and nowhere else.
        return np.stack([self.x - offset * self.sin, -(self.y + offset * self.cos), self.z], axis=1)


def lane_of(
    road: Road, section: int, record: LaneRecord, line: Line, edges: tuple[FloatArray, FloatArray], limit_mps: float
) -> Lane:
    """Return the lane between the lateral offsets (n,) of its inner and outer edge."""
    is_along = road.runs_along(record.lane_id)
    along = slice(None) if is_along else slice(None, None, -1)
    # The inner edge is nearer to the reference line: the left one in both directions of right-hand traffic.
    left, right = (line.beside(edge)[along] for edge in (edges if road.keeps_right else edges[::-1]))
    width = np.abs(edges[1] - edges[0])[along]
    return Lane(
        road.road_id,
        section,
        record.lane_id,
        record.kind,
        road.in_junction,
        (left + right) / 2,
        left,
        right,
        width,
        limit_mps,
        is_along,
    )


def markings_of(road: Road, step_m: float) -> Iterator[Marking]:
    """Yield the visible lines of a road, each at the outer edge of its lane (for lane 0 at the lane offset)."""
    for section in road.sections if road.line.pieces else ():
        found: dict[tuple[float, float], tuple[Line, dict[int, FloatArray]]] = {}
        for record in section.lanes:
            for mark, start, end in spans(record.marks, section):
                if not end - start >= MIN_LENGTH_M:
                    continue
                if (start, end) not in found:  # most marks of a section are as long as it
                    s = stations(start, end, step_m)
                    edges = {one.lane_id: outer for one, _, outer in offsets(road, section, s)}
                    found[start, end] = Line.of(road, s), edges
                line, edges = found[start, end]
                yield from lines(line, record, mark, edges[record.lane_id])


def lines(line: Line, record: LaneRecord, mark: RoadMark, edge: FloatArray) -> Iterator[Marking]:
    """Yield the one or two lines of a mark; for "solid broken" the first is the inner one (the left one for lane 0)."""
    single = SINGLE_LINES.get(mark.kind)
    kinds = [single] if single else [kind for kind in mark.kind.split() if kind in ("solid", "broken")]
    outwards = 1 if record.lane_id > 0 else -1
    for i, kind in enumerate(kinds):
        # A double line has a gap of one line width: its centres are one width to either side of the edge.
        aside = outwards * mark.width_m * (2 * i - len(kinds) + 1)
        yield Marking(line.beside(edge + aside), kind, mark.color, mark.width_m)


def spans(marks: tuple[RoadMark, ...], section: Section) -> Iterator[tuple[RoadMark, float, float]]:
    """Yield each mark with its start and end station."""
    bounds = [*(min(section.start + mark.offset, section.end) for mark in marks), section.end]
    yield from zip(marks, bounds[:-1], bounds[1:], strict=True)


def stations(start: float, end: float, step_m: float) -> FloatArray:
    """Return evenly spaced stations from start to end, both included, at most ``step_m`` apart."""
    return np.linspace(start, end, max(ceil((end - start) / step_m - 1e-9), 1) + 1)


def offsets(road: Road, section: Section, s: FloatArray) -> Iterator[tuple[LaneRecord, FloatArray, FloatArray]]:
    """Yield each lane with the lateral offsets (n,) of its inner and outer edge, positive to the left of the road."""
    base = road.lane_offset(s)
    for side in (1, -1):
        inner = base
        for record in sorted(
            (one for one in section.lanes if one.lane_id * side > 0), key=lambda one: abs(one.lane_id)
        ):
            outer = inner if record.width is None else inner + side * record.width(s - section.start)
            yield record, inner, outer
            inner = outer
    yield from ((record, base, base) for record in section.lanes if record.lane_id == 0)


def place(road: Road, s: FloatArray, offset: FloatArray) -> FloatArray:
    """Return points (n, 3) in CARLA's frame at lateral offsets from the reference line."""
    return Line.of(road, s).beside(offset)
