"""What the ground is at a place, by the outlines that its picture is painted from: road, sidewalk or terrain.

Owns a raster of CityObjectLabels. Never touches colours or rays.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.canvas import Canvas
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.paint import resolution_m

ROADS, SIDEWALKS, TERRAIN = 1, 2, 10


class GroundTags:
    """The labels of a map's ground; beyond the map all is terrain."""

    def __init__(self, network: RoadNetwork) -> None:
        x_min, y_min, x_max, y_max = network.bounds
        self._scale = scale = resolution_m(x_max - x_min, y_max - y_min)
        self._place = x_min, y_min
        shape = math.ceil((y_max - y_min) / scale), math.ceil((x_max - x_min) / scale)
        canvas = Canvas(shape, scale, x_min, y_min)
        self._tags = np.full(shape, TERRAIN, np.uint8)
        self._tags[canvas.sidewalks(network.lanes) > 0] = SIDEWALKS
        self._tags[canvas.road(network.lanes) > 0] = ROADS

    def at(self, x: FloatArray, y: FloatArray) -> NDArray[np.uint8]:
        """Return the labels of places (n,)."""
        column, row = (((at - low) // self._scale).astype(np.intp) for at, low in zip((x, y), self._place, strict=True))
        rows, columns = self._tags.shape
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        return np.where(inside, self._tags[np.where(inside, row, 0), np.where(inside, column, 0)], np.uint8(TERRAIN))
