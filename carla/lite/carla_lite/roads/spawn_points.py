"""Where cars may appear: places on driving lanes, outside junctions, far enough apart.

Owns only the choice, a pure function of the lanes: the same lanes give the same places in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from carla_lite.roads.lanes import Lane
from carla_lite.roads.reference_line import FloatArray

APART_M = 10.0
JUNCTION_CLEARANCE_M = 6.0
CANDIDATE_STEP_M = 2.0
MIN_LANE_WIDTH_M = 2.5
# Cars are let down from a little above the road, as CARLA's own spawn points do.
DROP_M = 0.5


@dataclass(frozen=True)
class SpawnPoint:
    """A place for a car, in CARLA's frame: metres, and yaw in radians along the direction of travel."""

    x: float
    y: float
    z: float
    yaw: float


def choose(lanes: Sequence[Lane]) -> tuple[SpawnPoint, ...]:
    """Return the places in the order of the lanes, any two at least 10 m apart and 6 m clear of every junction."""
    driving = [lane for lane in lanes if lane.kind == "driving"]
    junction = [lane.centre[:, :2] for lane in driving if lane.in_junction]
    blocked = np.concatenate(junction) if junction else np.empty((0, 2))
    taken = np.empty((0, 2))
    chosen = []
    for lane in driving:
        for point, place in candidates(lane):
            if clear(place, blocked, JUNCTION_CLEARANCE_M) and clear(place, taken, APART_M):
                taken = np.concatenate([taken, place[None]])
                chosen.append(point)
    return tuple(chosen)


def candidates(lane: Lane) -> Iterator[tuple[SpawnPoint, FloatArray]]:
    """Yield places along a lane with their (x, y): only inner samples, whose tangent is central; none in a junction."""
    if lane.in_junction:
        return
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(lane.centre[:, :2], axis=0), axis=1))])
    inner = np.arange(1, len(along) - 1)
    for i in inner[np.unique((along[inner] / CANDIDATE_STEP_M).astype(int), return_index=True)[1]]:
        if lane.width_m[i] >= MIN_LANE_WIDTH_M:
            x, y, z = (float(value) for value in lane.centre[i])
            dx, dy = lane.centre[i + 1, :2] - lane.centre[i - 1, :2]
            yield SpawnPoint(x, y, z + DROP_M, float(np.arctan2(dy, dx))), lane.centre[i, :2]


def clear(place: FloatArray, others: FloatArray, distance_m: float) -> bool:
    """Return whether no other place (n, 2) is nearer than ``distance_m``."""
    return bool((np.square(others - place).sum(axis=1) >= distance_m**2).all())
