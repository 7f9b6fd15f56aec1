"""Walkable areas as a raster: sidewalks, crosswalks, roads and the grass between them.

Owns the raster and which area wins where two overlap. Makes no polygons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.canvas import Canvas, longer_axis, outlines
from carla_lite.roads.lanes import Lane
from carla_lite.roads.reference_line import FloatArray

PIXEL_M = 0.25
MAX_PIXELS = 16_000_000
MARGIN_M = 4.0
# On a map without sidewalks, walkers use a strip this wide beside the road.
VERGE_M = 2.0
# A crosswalk is extended to a sidewalk up to this far away: shoulders and parked cars may lie between them.
REACH_M = 8.0
ONTO_M = 1.0

Labels = NDArray[np.uint8]


class Area(IntEnum):
    """Kind of a place, numbered as in the client's crowd (NavAreas in LibCarla's Navigation.h)."""

    BLOCK = 0
    SIDEWALK = 1
    CROSSWALK = 2
    ROAD = 3
    GRASS = 4
    """Lanes of OpenDRIVE's type median; a map doesn't describe the grass beside a road."""


@dataclass(frozen=True, eq=False)
class AreaMap:
    """One ``Area`` per pixel: rows along y, columns along x, from the corner (x_min, y_min)."""

    labels: Labels
    pixel_m: float
    x_min: float
    y_min: float


def area_map(lanes: Sequence[Lane], crosswalks: Sequence[FloatArray], verges: bool = True) -> AreaMap:
    """Return the areas of a map.

    Args:
        lanes: of the map.
        crosswalks: outlines (n, 2), which may reach over the kerb.
        verges: whether a map without sidewalks gets walkable verges beside its roads.
    """
    edges = np.concatenate([edge[:, :2] for lane in lanes for edge in (lane.left, lane.right)])
    low, high = edges.min(axis=0) - MARGIN_M, edges.max(axis=0) + MARGIN_M
    pixel_m = max(PIXEL_M, math.sqrt(float(np.prod(high - low)) / MAX_PIXELS))
    columns, rows = np.ceil((high - low) / pixel_m).astype(int).tolist()
    canvas = Canvas((rows, columns), pixel_m, *low.tolist())
    road, walked = canvas.road(lanes), canvas.sidewalks(lanes)
    if verges and not walked.any():
        reach = 2 * round(VERGE_M / pixel_m) + 1
        walked = cv2.dilate(road, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))).astype(np.uint8)
    labels = np.where(walked, np.uint8(Area.SIDEWALK), np.uint8(Area.BLOCK))
    labels[road > 0] = Area.ROAD
    labels[canvas.mask(outlines(lanes, lambda kind: kind == "median"), soft=True) > 0] = Area.GRASS

    def is_walked(place: FloatArray) -> bool:
        column, row = ((place - low) / pixel_m).astype(int).tolist()
        return 0 <= row < rows and 0 <= column < columns and bool(labels[row, column] == Area.SIDEWALK)

    crossed = canvas.mask((_drawn_out(outline[:, :2], is_walked) for outline in crosswalks), soft=True)
    labels[(crossed > 0) & (labels != Area.SIDEWALK)] = Area.CROSSWALK
    return AreaMap(labels, pixel_m, float(low[0]), float(low[1]))


def _drawn_out(outline: FloatArray, is_walked: Callable[[FloatArray], bool]) -> FloatArray:
    """Return a crosswalk's outline (n, 2), with each end that stops short of a sidewalk moved onto it."""
    middle, along, length = longer_axis(outline)
    reached: FloatArray = outline.copy()
    for way in (along, -along):
        end = middle + 0.5 * length * way
        steps = np.arange(-1.0, REACH_M, PIXEL_M).tolist()
        gap = next((step for step in steps if is_walked(end + step * way)), None)
        if gap is not None:
            # Corners of kerbs are round, and crosswalks may be slanted.
            reached[(outline - middle) @ way > 0.0] += (max(gap, 0.0) + ONTO_M) * way
    return reached
