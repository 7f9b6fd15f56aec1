"""Static boxes, and the lookup of those near a place.

Owns buildings, poles and trees as oriented boxes, and the grid that finds them. Never touches vehicles or pixels, and
doesn't place them: ``streetscape`` does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

CELL_M = 8.0
SPOT_M = 4.0
KEPT_SPOTS = 4096  # vehicles may leave the roads, and the map
# How far a hit may move a vehicle before the next lookup.
SLACK_M = 1.0
FINE_M, _MOST_CELLS = 0.5, 4 << 20

# CityObjectLabel of the CARLA client (wire protocol section 3.5), for semantic cameras and collisions.
TAG_BUILDING = 3
TAG_POLE = 6
TAG_VEGETATION = 9


@dataclass(frozen=True, slots=True)
class StaticBox:
    """An upright oriented box: centre and half sizes in metres, yaw in radians, colour in BGR."""

    x: float
    y: float
    z: float
    half_length_m: float
    half_width_m: float
    half_height_m: float
    yaw: float
    colour: tuple[int, int, int]
    tag: int
    solid: bool = True
    """Whether a vehicle can hit it; a tree's crown hangs above the road."""
    lamp: bool = False
    """Whether a street lamp shines at its top at night."""
    cos: float = field(init=False, repr=False)
    sin: float = field(init=False, repr=False)
    reach_m: float = field(init=False, repr=False)
    """Radius of the circle around the footprint."""
    bottom: float = field(init=False, repr=False)
    top: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cos", math.cos(self.yaw))
        object.__setattr__(self, "sin", math.sin(self.yaw))
        object.__setattr__(self, "reach_m", math.hypot(self.half_length_m, self.half_width_m))
        object.__setattr__(self, "bottom", self.z - self.half_height_m)
        object.__setattr__(self, "top", self.z + self.half_height_m)

    @property
    def centre(self) -> tuple[float, float, float]:
        """The centre of the box (m)."""
        return self.x, self.y, self.z

    @property
    def extent(self) -> tuple[float, float, float]:
        """Half sizes along the box's axes (m)."""
        return self.half_length_m, self.half_width_m, self.half_height_m

    def corners(self) -> tuple[tuple[float, float], ...]:
        """Return the footprint's four corners in the world's frame, clockwise from above, front right first."""
        a, b = self.half_length_m, self.half_width_m
        return tuple(
            (self.x + self.cos * u - self.sin * v, self.y + self.sin * u + self.cos * v)
            for u, v in ((a, b), (-a, b), (-a, -b), (a, -b))
        )


class Clearances:
    """A raster of half a metre, or more on a large map, that gives a distance within which no box is.

    Most of what moves is farther than its own size from every box, and needs no look at any of them.
    """

    def __init__(self, boxes: Sequence[StaticBox]) -> None:
        corners = np.array([box.corners() for box in boxes] or np.zeros((1, 4, 2)))
        low, high = corners.min(axis=1), corners.max(axis=1)
        self._from = low.min(axis=0)
        self.cell_m = max(FINE_M, math.sqrt(float(np.prod(high.max(axis=0) - self._from)) / _MOST_CELLS))
        starts, ends = (((edge - self._from) / self.cell_m).astype(int) for edge in (low, high))
        free = np.ones(ends.max(axis=0) + 1, np.uint8)
        for (column, row), (last_column, last_row) in zip(starts.tolist(), ends.tolist(), strict=True):
            free[column : last_column + 1, row : last_row + 1] = not boxes
        # From cell to cell; both places may be in their cells' corners.
        between = cv2.distanceTransform(free, cv2.DIST_L2, cv2.DIST_MASK_PRECISE) - 1.5
        self._tenths = np.clip(10.0 * self.cell_m * between, 0.0, 255.0).astype(np.uint8)
        self._west, self._north = self._from.tolist()
        self._last_column, self._last_row = (size - 1 for size in free.shape)

    def at(self, x: float, y: float) -> float:
        """Return the distance (m) for a place; off the raster that of the next place on it, which is no farther."""
        column, row = math.floor((x - self._west) / self.cell_m), math.floor((y - self._north) / self.cell_m)
        column = 0 if column < 0 else min(column, self._last_column)
        row = 0 if row < 0 else min(row, self._last_row)
        return 0.1 * float(self._tenths.item(column, row))

    def of(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the distances (m) for places (n,)."""
        columns = np.minimum(np.maximum((x - self._west) / self.cell_m, 0.0), self._last_column)
        rows = np.minimum(np.maximum((y - self._north) / self.cell_m, 0.0), self._last_row)
        found: NDArray[np.float64] = 0.1 * self._tenths[columns.astype(np.intp), rows.astype(np.intp)]
        return found


class StaticIndex:
    """Boxes in a grid of 8 m cells; each box is listed in every cell that its bounding rectangle touches."""

    def __init__(self, boxes: Iterable[StaticBox] = ()) -> None:
        self.boxes: tuple[StaticBox, ...] = tuple(boxes)
        self._cells: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, box in enumerate(self.boxes):
            xs, ys = zip(*box.corners(), strict=True)
            for cell in _cells(min(xs), min(ys), max(xs), max(ys)):
                self._cells[cell].append(index)
        self._cells.default_factory = None
        self._around: dict[tuple[float, float, int], tuple[StaticBox, ...]] = {}
        self._clearances: Clearances | None = None

    @property
    def clearances(self) -> Clearances:
        """How far it is from each place to the next solid box, at least; made when first needed."""
        if self._clearances is None:
            self._clearances = Clearances([box for box in self.boxes if box.solid])
        return self._clearances

    def at(self, x: float, y: float) -> Sequence[int]:
        """Return the ascending indices of boxes listed in a place's cell: cheaper than a rectangle."""
        return self._cells.get((math.floor(x / CELL_M), math.floor(y / CELL_M)), ())

    def touching(self, x_min: float, y_min: float, x_max: float, y_max: float) -> Sequence[int]:
        """Return the ascending indices of boxes listed in the cells of a rectangle: a superset of those in it."""
        found: set[int] = set()
        for cell in _cells(x_min, y_min, x_max, y_max):
            found.update(self._cells.get(cell, ()))
        return sorted(found) if found else ()

    def solid_around(self, x: float, y: float, reach: float) -> tuple[StaticBox, ...]:
        """Return the solid boxes within ``reach`` metres of (x, y), and a little beyond, in the boxes' order.

        The result is cached per spot of some metres, since every vehicle asks each tick.
        """
        column, row = x // SPOT_M, y // SPOT_M
        whole = math.ceil(reach)  # few different values, so that most lookups are cached
        found = self._around.get((column, row, whole))
        if found is None:
            listed = self.near((column + 0.5) * SPOT_M, (row + 0.5) * SPOT_M, whole + 0.75 * SPOT_M + SLACK_M)
            found = tuple(self.boxes[i] for i in listed if self.boxes[i].solid)
            if len(self._around) >= KEPT_SPOTS:
                self._around.clear()
            self._around[column, row, whole] = found
        return found

    def near(self, x: float, y: float, radius: float) -> list[int]:
        """Return the ascending indices of boxes whose footprint comes within ``radius`` metres of (x, y)."""
        candidates = self.touching(x - radius, y - radius, x + radius, y + radius)
        return [i for i in candidates if distance(self.boxes[i], x, y) <= radius]


def distance(box: StaticBox, x: float, y: float) -> float:
    """Return the distance in the plane from (x, y) to the box's footprint, 0 inside (m)."""
    dx, dy = x - box.x, y - box.y
    along = max(0.0, abs(dx * box.cos + dy * box.sin) - box.half_length_m)
    across = max(0.0, abs(dy * box.cos - dx * box.sin) - box.half_width_m)
    return math.hypot(along, across)


def _cells(x_min: float, y_min: float, x_max: float, y_max: float) -> list[tuple[int, int]]:
    columns = range(math.floor(x_min / CELL_M), math.floor(x_max / CELL_M) + 1)
    rows = range(math.floor(y_min / CELL_M), math.floor(y_max / CELL_M) + 1)
    return [(column, row) for column in columns for row in rows]
