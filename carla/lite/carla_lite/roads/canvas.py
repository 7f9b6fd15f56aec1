"""Draws a map's surfaces into rasters, for pictures of them and for where people walk.

Owns the conversion from metres to pixels, and which outlines and holes count. Knows no colours and no areas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.lanes import Lane
from carla_lite.roads.reference_line import FloatArray

SUB = 4
"""Fractional bits of drawing coordinates."""
HOLE_M2 = 200.0
"""Largest hole to fill. Holes between the turns of a junction have at most 30 m², the smallest block of houses over 1
900.
"""

Mask = NDArray[np.uint8]


class Canvas:
    """Draws shapes given in metres."""

    def __init__(self, shape: tuple[int, int], scale: float, x_min: float, y_min: float) -> None:
        self.shape, self.scale, self.x, self.y = shape, scale, x_min, y_min

    def mask(self, outlines: Iterable[FloatArray], soft: bool = False) -> Mask:
        """Return 255 inside any outline, else 0; unless ``soft``, one pixel wider so that neighbours leave no seam."""
        mask: Mask = np.zeros(self.shape, np.uint8)
        for outline in outlines:
            places = (outline[:, :2] - (self.x, self.y)) / self.scale - 0.5
            pixels = np.rint(places * (1 << SUB)).astype(np.int32)
            cv2.fillPoly(mask, [pixels], (255,), cv2.LINE_8, SUB)
            if not soft:
                cv2.polylines(mask, [pixels], True, (255,), 1, cv2.LINE_8, SUB)
        return mask

    def road(self, lanes: Iterable[Lane]) -> Mask:
        """Return 255 where cars drive or park, including the gaps between a junction's lanes."""
        mask = self.mask(outlines(lanes, lambda kind: kind not in ("sidewalk", "none", "border")))
        _fill_holes(mask, HOLE_M2 / self.scale**2)
        return mask

    def sidewalks(self, lanes: Iterable[Lane]) -> Mask:
        """Return 255 where people walk beside the road."""
        return self.mask(outlines(lanes, lambda kind: kind == "sidewalk"))


def outlines(lanes: Iterable[Lane], wanted: Callable[[str], bool]) -> Iterator[FloatArray]:
    """Yield the outline of each lane with a wanted OpenDRIVE type."""
    for lane in lanes:
        if wanted(lane.kind):
            yield np.concatenate([lane.left, lane.right[::-1]])


def _fill_holes(mask: Mask, largest: float) -> None:
    """Fill holes of a mask with at most ``largest`` pixels: in a junction some spots belong to no lane."""
    outlines, tree = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    parents = [] if tree is None else tree[0][:, 3]
    for outline, parent in zip(outlines, parents, strict=True):
        if parent >= 0 and cv2.contourArea(outline) <= largest:
            cv2.drawContours(mask, [outline], 0, (255,), cv2.FILLED)


def longer_axis(outline: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return the centre of an outline (n, 2), the unit vector along its longer side, and that side's length."""
    corners = cv2.boxPoints(cv2.minAreaRect(outline.astype(np.float32))).astype(np.float64)
    side = max(corners[1] - corners[0], corners[2] - corners[1], key=lambda side: float(np.linalg.norm(side)))
    length = float(np.linalg.norm(side))
    return corners.mean(axis=0), side / max(length, 1e-9), length
