"""Crosswalks, from the map or else at its junctions, and stop lines.

Owns the outlines of both. A map without any crosswalk object (Town01 and Town02 of 2020) gets one across the mouth of
every road at every junction; the client's ``get_crosswalks`` doesn't know these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from carla_lite.roads.lanes import offsets, place
from carla_lite.roads.opendrive import Road
from carla_lite.roads.reference_line import FloatArray

# A derived crosswalk is inside the junction, just beyond the road's end, and reaches onto the sidewalks.
NEAR_M, FAR_M, BESIDE_M = 0.6, 3.6, 1.5
STOP_LINE_M = 0.4
STOP_BEFORE_M = 0.3
# Up to this distance from a road's end, a crosswalk moves the stop line back.
MOUTH_M = 12.0
MIN_ROAD_M = 4.0
JUNCTION_ARMS = 3


@dataclass(frozen=True, eq=False)
class Crossings:
    """Outlines (n, 3) in CARLA's frame, m."""

    crosswalks: tuple[FloatArray, ...]
    stop_lines: tuple[FloatArray, ...]


NO_CROSSINGS = Crossings((), ())


@dataclass(frozen=True)
class _Mouth:
    """The end of a road at a junction; ``outwards`` is 1 where the road ends there and −1 where it starts."""

    road: Road
    s: float
    outwards: int

    @cached_property
    def at(self) -> tuple[float, float, float, float]:
        """Its x, y, z and heading in OpenDRIVE's frame."""
        x, y, z, heading = (float(value[0]) for value in self.road.line(np.array([self.s])))
        return x, y, z, heading

    @cached_property
    def lanes(self) -> tuple[tuple[int, str, float, float], ...]:
        """Id, kind and both lateral offsets of the lanes that cars use here."""
        section = self.road.sections[-1 if self.outwards > 0 else 0]
        found = (
            (record.lane_id, record.kind, min(ends), max(ends))
            for record, inner, outer in offsets(self.road, section, np.array([self.s]))
            for ends in [(float(inner[0]), float(outer[0]))]
            if record.kind not in ("none", "border", "sidewalk")
        )
        return tuple(lane for lane in found if lane[3] - lane[2] > 0.01)

    def across(self, low: float, high: float, near_m: float, far_m: float) -> FloatArray:
        """Return a rectangle between two lateral offsets, from ``near_m`` to ``far_m`` beyond the end (or before)."""
        x, y, z, heading = self.at
        ahead = self.outwards * np.array([near_m, near_m, far_m, far_m])
        aside = np.array([low, high, high, low])
        cos, sin = np.cos(heading), np.sin(heading)
        return np.stack(
            [x + cos * ahead - sin * aside, -(y + sin * ahead + cos * aside), np.full(4, z)],
            axis=1,
        )


def crossings(roads: Sequence[Road]) -> Crossings:
    """Return the crosswalks and stop lines of a map."""
    mouths = list(_mouths(roads))
    crosswalks = tuple(outline for road in roads for outline in _objects(road))
    found = crosswalks or tuple(_derived(mouth) for mouth in mouths)
    return Crossings(found, tuple(line for mouth in mouths for line in _stop_lines(mouth, crosswalks)))


def _mouths(roads: Sequence[Road]) -> Iterator[_Mouth]:
    """Yield the ends of roads with driving lanes at junctions where at least three roads meet."""
    arms = Counter(junction for road in roads for junction in road.junctions if junction is not None)
    for road in roads:
        if road.in_junction or road.length < MIN_ROAD_M or not (road.sections and road.line.pieces):
            continue
        for junction, s, outwards in zip(road.junctions, (0.0, road.length), (-1, 1), strict=True):
            if junction is not None and arms[junction] >= JUNCTION_ARMS:
                mouth = _Mouth(road, s, outwards)
                if mouth.lanes:
                    yield mouth


def _derived(mouth: _Mouth) -> FloatArray:
    low, high = min(lane[2] for lane in mouth.lanes), max(lane[3] for lane in mouth.lanes)
    return mouth.across(low - BESIDE_M, high + BESIDE_M, NEAR_M, FAR_M)


def _stop_lines(mouth: _Mouth, crosswalks: Sequence[FloatArray]) -> Iterator[FloatArray]:
    """Yield one line across each group of neighbouring lanes that lead into the junction."""
    out = mouth.outwards > 0
    incoming = [lane for lane in mouth.lanes if lane[1] == "driving" and mouth.road.runs_along(lane[0]) is out]
    if not incoming:
        return
    low, high = min(lane[2] for lane in incoming), max(lane[3] for lane in incoming)
    back = STOP_BEFORE_M + max((_depth(mouth, outline, low, high) for outline in crosswalks), default=0.0)
    if back + STOP_LINE_M < mouth.road.length:
        yield mouth.across(low, high, -back - STOP_LINE_M, -back)


def _depth(mouth: _Mouth, outline: FloatArray, low: float, high: float) -> float:
    """Return how far before the mouth a crosswalk begins that lies across these offsets; 0 for one elsewhere."""
    x, y, _, heading = mouth.at
    dx, dy = outline[:, 0] - x, -outline[:, 1] - y
    before = -mouth.outwards * (dx * np.cos(heading) + dy * np.sin(heading))
    aside = dy * np.cos(heading) - dx * np.sin(heading)
    across = aside.max() > low and aside.min() < high
    return float(before.max()) if across and before.min() > -MOUTH_M and 0.0 < before.max() < MOUTH_M else 0.0


def _objects(road: Road) -> Iterator[FloatArray]:
    """Yield the outlines of the road's crosswalk objects."""
    for crosswalk in road.crosswalks if road.line.pieces else ():
        centre = place(road, np.array([crosswalk.s]), np.array([crosswalk.t]))[0]
        turn = float(road.line(np.array([crosswalk.s]))[3][0]) + crosswalk.heading
        u, v = np.array(crosswalk.corners).T
        cos, sin = np.cos(turn), np.sin(turn)
        yield centre + np.stack([cos * u - sin * v, -(sin * u + cos * v), np.zeros(len(u))], axis=1)
