"""Height of the ground at a place: a very cheap lookup, since physics calls it in every substep.

Owns a raster of heights around the lanes, and a second one where roads cross above one another; a map without hills is
one number. Of roads it knows only their sampled points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import floor
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray

FLAT_M = 1e-3
CELL_M = 1.0
# A Python float takes 32 B: 128 MiB in all, and twice that with bridges. On hilly maps above 2 × 2 km the cells are
# larger.
MAX_CELLS = 4 << 20
# A lane so far above another one is on a bridge: on steep roads, lanes that are near differ by less.
BRIDGE_M = 4.0
HEADROOM_M = 2.0
"""What is deeper than this below a bridge is on the road under it."""


class Rasters(NamedTuple):
    """Heights (rows along y, columns along x) of cells from a corner on; an empty cell has the nearest height."""

    corner: FloatArray  # (2,) m
    cell_m: float
    upper: FloatArray
    lower: FloatArray  # the same array if no road crosses above another


def ground(points: FloatArray) -> Callable[[float, float, float], float]:
    """Return a function that gives the height in metres at (x, y, z), in CARLA's frame.

    It is the height of the nearest of all lane samples (n, 3), interpolated between cells of one metre, or more on a
    large map; beyond the map it is that of its edge. On and under a bridge, z says which of the two roads is meant.
    """
    # A function: a callable object costs twice as much.
    level = level_of(points)
    if level is not None:
        return lambda _x, _y, _z: level
    corner, cell_m, upper, lower = rasters(points)
    west, north = corner.tolist()
    bridges = lower is not upper
    rows: list[list[float]] = upper.tolist()  # lists, because scalar access to arrays is slow
    rows_below: list[list[float]] = lower.tolist() if bridges else rows

    def height(x: float, y: float, z: float) -> float:
        # Weights of the four cells whose centres surround the point.
        column, row = (x - west) / cell_m, (y - north) / cell_m
        i = min(max(floor(row), 0), len(rows) - 2)
        j = min(max(floor(column), 0), len(rows[0]) - 2)
        u, v = min(max(column - j, 0.0), 1.0), min(max(row - i, 0.0), 1.0)
        upper, lower = rows[i], rows[i + 1]
        # The highest of the four: between a bridge and its surroundings a mean would be a bump on the road under it.
        if bridges and z < max(upper[j], upper[j + 1], lower[j], lower[j + 1]) - HEADROOM_M:
            upper, lower = rows_below[i], rows_below[i + 1]
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


def rasters(points: FloatArray) -> Rasters:
    """Return the heights around lane samples (n, 3): with bridges, and without."""
    corner = points[:, :2].min(axis=0)
    cell_m = max(CELL_M, math.sqrt(float(np.prod(np.ptp(points[:, :2], axis=0))) / MAX_CELLS))
    cells = np.rint((points[:, :2] - corner) / cell_m).astype(np.intp)
    columns, rows = (cells.max(axis=0) + 2).tolist()
    index = cells[:, 1] * columns + cells[:, 0]
    over, under = _crossing(points, corner, max(BRIDGE_M, cell_m))

    def raster(which: NDArray[np.bool_]) -> FloatArray:
        return _filled(index[which], points[which, 2], rows, columns)

    upper = raster(~under)
    return Rasters(corner, cell_m, upper, raster(~over) if over.any() else upper)


def _crossing(points: FloatArray, corner: FloatArray, far_m: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which samples are farther above, and which farther below, another one that is nearer than ``far_m``."""
    cells = tuple(((points[:, :2] - corner) / far_m).astype(np.intp).T)
    heights = points[:, 2]
    size, around = tuple(int(each.max()) + 1 for each in cells), np.ones((3, 3))

    def extreme(of: np.ufunc, start: float, widen: Callable[..., Any]) -> FloatArray:
        found = np.full(size, start)
        of.at(found, cells, heights)
        widened: FloatArray = widen(found, around)[cells]
        return widened

    over = heights - extreme(np.minimum, np.inf, cv2.erode) > far_m
    under = extreme(np.maximum, -np.inf, cv2.dilate) - heights > far_m
    return over, under


def _filled(index: NDArray[np.intp], heights: FloatArray, rows: int, columns: int) -> FloatArray:
    """Return the mean height of the samples of each cell, of which ``index`` is the number."""
    count = np.bincount(index, minlength=rows * columns)
    total = np.bincount(index, weights=heights, minlength=rows * columns)
    empty = (count == 0).reshape(rows, columns).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(empty, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    mean = np.zeros(int(nearest.max()) + 1)
    filled = count > 0
    mean[nearest.reshape(-1)[filled]] = total[filled] / count[filled]
    found: FloatArray = mean[nearest]
    return found
