"""Spawn points of cars: places on driving lanes, outside junctions, far enough apart.

Owns only the choice, a pure function of the lanes: equal lanes give equal places in the same order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from carla_lite.roads.lanes import Lane
from carla_lite.roads.reference_line import FloatArray

APART_M = 10.0
JUNCTION_CLEARANCE_M = 6.0
CANDIDATE_STEP_M = 2.0
MIN_LANE_WIDTH_M = 2.5
# Cars are dropped from a little above the road, as from CARLA's spawn points.
DROP_M = 0.5
_LONG_M, _WIDE_M = 5.2, 1.5  # half a bus


@dataclass(frozen=True)
class SpawnPoint:
    """A place for a car, in CARLA's frame: metres, and radians: yaw along the direction of travel, pitch uphill."""

    x: float
    y: float
    z: float
    yaw: float
    pitch: float = 0.0


def choose(lanes: Sequence[Lane]) -> tuple[SpawnPoint, ...]:
    """Return the places in the order of the lanes, any two at least 10 m apart and 6 m clear of every junction."""
    driving = [lane for lane in lanes if lane.kind == "driving"]
    junctions, taken = Places(JUNCTION_CLEARANCE_M), Places(APART_M)
    for lane in driving:
        if lane.in_junction:
            for x, y, _ in lane.centre.tolist():
                junctions.add(x, y)
    chosen = []
    for lane in driving:
        for point in candidates(lane):
            if junctions.clear(point.x, point.y) and taken.clear(point.x, point.y):
                taken.add(point.x, point.y)
                chosen.append(point)
    return tuple(chosen)


def candidates(lane: Lane) -> Iterator[SpawnPoint]:
    """Yield places along a lane: only inner samples, whose tangent is central; none in a junction."""
    if lane.in_junction:
        return
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(lane.centre[:, :2], axis=0), axis=1))])
    inner = np.arange(1, len(along) - 1)
    for i in inner[np.unique((along[inner] / CANDIDATE_STEP_M).astype(int), return_index=True)[1]]:
        if lane.width_m[i] >= MIN_LANE_WIDTH_M:
            x, y, z = (float(value) for value in lane.centre[i])
            yield SpawnPoint(x, y, z + DROP_M, *_facing(lane.centre[i + 1] - lane.centre[i - 1]))


def entries(lanes: Sequence[Lane]) -> Iterator[SpawnPoint]:
    """Yield the places that CARLA uses in a world made from OpenDRIVE (OpenDriveGenerator.cpp): the start of each
    driving lane, however narrow. They are for maps on which ``choose`` finds none.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for lane in lanes:
        first.setdefault(lane.road_id, lane.section)
        last[lane.road_id] = lane.section
    for lane in lanes:
        if lane.kind == "driving" and lane.section == (first if lane.along else last)[lane.road_id]:
            x, y, z = lane.centre[0].tolist()
            yield SpawnPoint(x, y, z + DROP_M, *_facing(lane.centre[1] - lane.centre[0]))


def _facing(along: FloatArray) -> tuple[float, float]:
    dx, dy, dz = along.tolist()
    return math.atan2(dy, dx), math.atan2(dz, math.hypot(dx, dy))


def has_room(point: SpawnPoint, ground: Callable[[float, float, float], float]) -> bool:
    """Return whether the longest vehicle can stand there: beside a ramp the ground under it may be another road's."""
    c, s, slope = math.cos(point.yaw), math.sin(point.yaw), math.tan(point.pitch)
    return all(
        ground(point.x + c * u - s * v, point.y + s * u + c * v, point.z) < point.z + slope * u
        for u in (-_LONG_M, _LONG_M)
        for v in (-_WIDE_M, _WIDE_M)
    )


class Places:
    """Places in cells as wide as the least distance between places: nine cells hold all that can be too near."""

    def __init__(self, distance_m: float) -> None:
        self._distance_m = distance_m
        self._cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)

    def add(self, x: float, y: float) -> None:
        """Add a place."""
        self._cells[int(x // self._distance_m), int(y // self._distance_m)].append((x, y))

    def clear(self, x: float, y: float) -> bool:
        """Return whether no place is nearer than the distance."""
        column, row = int(x // self._distance_m), int(y // self._distance_m)
        around = (self._cells.get((column + i, row + j), ()) for i in (-1, 0, 1) for j in (-1, 0, 1))
        return all((u - x) ** 2 + (v - y) ** 2 >= self._distance_m**2 for cell in around for u, v in cell)
