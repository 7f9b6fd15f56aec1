"""Height of the ground at a place: a very cheap lookup, since physics calls it in every substep.

Owns a raster of heights around the lanes; a map without hills is one number. Of roads it knows only their sampled
points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import floor

import cv2
import numpy as np

from carla_lite.roads.reference_line import FloatArray

FLAT_M = 1e-3
CELL_M = 1.0
# A Python float takes 32 B: 128 MiB in all. On hilly maps above 2 × 2 km the cells are larger.
MAX_CELLS = 4 << 20


def ground(points: FloatArray) -> Callable[[float, float], float]:
    """Return a function that gives the height in metres at (x, y), in CARLA's frame.

    It is the height of the nearest of all lane samples (n, 3), interpolated between cells of one metre, or more on a
    large map; beyond the map it is that of its edge.
    """
    # A function: a callable object costs twice as much.
    level = level_of(points)
    if level is not None:
        return lambda _x, _y: level
    low = points[:, :2].min(axis=0)
    west, north = low.tolist()
    cell_m = cell_of(points)
    rows = raster(points, low, cell_m).tolist()  # lists, because scalar access to arrays is slow

    def height(x: float, y: float) -> float:
        # Weights of the four cells whose centres surround the point.
        column, row = (x - west) / cell_m, (y - north) / cell_m
        i = min(max(floor(row), 0), len(rows) - 2)
        j = min(max(floor(column), 0), len(rows[0]) - 2)
        u, v = min(max(column - j, 0.0), 1.0), min(max(row - i, 0.0), 1.0)
        upper, lower = rows[i], rows[i + 1]
        above = upper[j] + u * (upper[j + 1] - upper[j])
        below = lower[j] + u * (lower[j + 1] - lower[j])
        return float(above + v * (below - above))

    return height


def level_of(points: FloatArray) -> float | None:
    """Return the median height of lane samples (n, 3) in metres, None if there are hills."""
    if not np.ptp(points[:, 2]) < FLAT_M:
        return None
    # np.median's first call imports numpy.ma: 10 ms of a start.
    heights = np.sort(points[:, 2])
    return float(heights[(len(heights) - 1) // 2] + heights[len(heights) // 2]) / 2


def cell_of(points: FloatArray) -> float:
    """Return the side of a raster's cells around these points, in metres."""
    return max(CELL_M, math.sqrt(float(np.prod(np.ptp(points[:, :2], axis=0))) / MAX_CELLS))


def raster(points: FloatArray, low: FloatArray, cell_m: float) -> FloatArray:
    """Return heights (rows along y, columns along x) of cells from ``low`` on; an empty cell has the nearest height."""
    cells = np.rint((points[:, :2] - low) / cell_m).astype(np.intp)
    columns, rows = cells.max(axis=0) + 2
    index = cells[:, 1] * columns + cells[:, 0]
    count = np.bincount(index, minlength=rows * columns)
    total = np.bincount(index, weights=points[:, 2], minlength=rows * columns)
    empty = (count == 0).reshape(rows, columns).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(empty, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    mean = np.zeros(int(nearest.max()) + 1)
    filled = count > 0
    mean[nearest.reshape(-1)[filled]] = total[filled] / count[filled]
    heights: FloatArray = mean[nearest]
    return heights
