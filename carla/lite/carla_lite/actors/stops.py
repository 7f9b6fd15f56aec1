"""The places before lights and signs, a lane each: what a vehicle that touches one is at.

Owns the lookup by place, which every vehicle asks each tick. Knows no state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, TypeVar

from carla_lite.motion.collisions import Box, box_around, overlaps
from carla_lite.motion.physics import Body
from carla_lite.roads.signals import Stop
from carla_lite.scenery.projection import Pose

# Half sizes (m) along and across the lane, and up, of the place before a light or sign where a vehicle is at it
# (TrafficLightComponent.cpp, StopSignComponent.cpp): across a quarter of the lane's width.
STOP_LENGTH_M, STOP_HEIGHT_M, STOP_SHARE = 1.5, 1.0, 0.25
# A vehicle is looked up by the cell of its middle: a stop is listed in every cell from which a long one reaches it.
_CELL_M, _REACH_M = 4.0, 7.5

T = TypeVar("T")


class Stops(Generic[T]):
    """Which light or sign holds where."""

    def __init__(self) -> None:
        self._places: dict[tuple[float, float], list[tuple[T, float, Box]]] = defaultdict(list)
        """By cell: who holds there, the yaw of the lane, and the place."""

    def add(self, owner: T, stop: Stop) -> None:
        """Let a light or sign hold at a stop."""
        extent = STOP_LENGTH_M, STOP_SHARE * stop.lane_width_m, STOP_HEIGHT_M
        place = owner, stop.yaw, box_around(Pose(stop.x, stop.y, stop.z, 0.0, stop.yaw), extent)
        for cell in _cells(stop.x, stop.y):
            self._places[cell].append(place)

    def at(self, body: Body) -> T | None:
        """Return what a vehicle stands or drives before.

        One that comes out of the junction beside it and cuts the corner isn't before it, though it touches the place.
        """
        x, y = body.x, body.y
        for owner, yaw, box in self._places.get((x // _CELL_M, y // _CELL_M), ()):
            near = abs(x - box.x) < _REACH_M and abs(y - box.y) < _REACH_M
            if near and math.cos(body.yaw - yaw) > 0.0 and overlaps(body, box):
                return owner
        return None


def _cells(x: float, y: float) -> Iterator[tuple[float, float]]:
    """Yield the cells from whose places a vehicle reaches this one."""
    for column in range(math.floor((x - _REACH_M) / _CELL_M), math.floor((x + _REACH_M) / _CELL_M) + 1):
        for row in range(math.floor((y - _REACH_M) / _CELL_M), math.floor((y + _REACH_M) / _CELL_M) + 1):
            yield float(column), float(row)
