"""The stop areas of lights and signs, one per lane: a vehicle that touches one is at that light or sign.

Owns the lookup by place, which every vehicle does each tick. Knows no state.
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

# Half sizes (m) along the lane, across it and up, of the area before a light or sign where a vehicle counts as at it
# (TrafficLightComponent.cpp, StopSignComponent.cpp); across it is a quarter of the lane's width.
STOP_LENGTH_M, STOP_HEIGHT_M, STOP_SHARE = 1.5, 1.0, 0.25
# A vehicle is looked up by the cell of its centre: a stop is listed in every cell from which a long vehicle reaches it.
_CELL_M, _REACH_M = 4.0, 7.5

T = TypeVar("T")


class Stops(Generic[T]):
    """Which light or sign holds which area."""

    def __init__(self) -> None:
        self._places: dict[tuple[float, float], list[tuple[T, float, Box]]] = defaultdict(list)
        """By cell: the light or sign, the lane's yaw, and the place."""

    def add(self, owner: T, stop: Stop) -> None:
        """Add a stop area of a light or sign."""
        extent = STOP_LENGTH_M, STOP_SHARE * stop.lane_width_m, STOP_HEIGHT_M
        place = owner, stop.yaw, box_around(Pose(stop.x, stop.y, stop.z, 0.0, stop.yaw), extent)
        for cell in _cells(stop.x, stop.y):
            self._places[cell].append(place)

    def at(self, body: Body) -> T | None:
        """Return the light or sign that a vehicle is at.

        A vehicle that leaves the junction beside it and cuts the corner isn't at it, though it touches the area.
        """
        x, y = body.x, body.y
        for owner, yaw, box in self._places.get((x // _CELL_M, y // _CELL_M), ()):
            near = abs(x - box.x) < _REACH_M and abs(y - box.y) < _REACH_M
            if near and math.cos(body.yaw - yaw) > 0.0 and overlaps(body, box):
                return owner
        return None


def _cells(x: float, y: float) -> Iterator[tuple[float, float]]:
    """Yield the cells from which a vehicle reaches this place."""
    for column in range(math.floor((x - _REACH_M) / _CELL_M), math.floor((x + _REACH_M) / _CELL_M) + 1):
        for row in range(math.floor((y - _REACH_M) / _CELL_M), math.floor((y + _REACH_M) / _CELL_M) + 1):
            yield float(column), float(row)
