"""What is behind everything: the sky and the ground, for one height and pitch of a camera.

Owns the rows of the image: which are sky, which ground, from which level of the ground's picture each is taken, how
hazy each is. Never touches boxes. Holds no pose: a camera keeps one backdrop for each height and pitch it meets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.paint import GRASS, LEVELS, GroundImage, Image
from carla_lite.scenery.projection import Lens, View

GROUND_END_M = 600.0


# From pixels of the finest level to those of level k, whose pixels are 2^k as wide; centres are whole numbers in both.
_LEVELS = [
    np.array(((half, 0.0, 0.5 * half - 0.5), (0.0, half, 0.5 * half - 0.5), (0.0, 0.0, 1.0)))
    for half in (0.5**level for level in range(LEVELS))
]


def _below(row: int) -> FloatArray:
    """Return the shift from pixels of an image's lower part, which begins at ``row``, to those of the image."""
    return np.array(((1.0, 0.0, 0.0), (0.0, 1.0, row), (0.0, 0.0, 1.0)))


@dataclass(frozen=True)
class _Band:
    """Rows that are taken from one level of the ground's picture."""

    first: int
    last: int
    level: int


class Backdrop:
    """Sky and ground seen ``above_m`` over the ground at ``pitch`` (rad); ``scale`` is the ground's metres a pixel."""

    def __init__(self, lens: Lens, above_m: float, pitch: float, scale: float, daylight: Daylight) -> None:
        self.above_m, self._daylight = above_m, daylight
        width, height, focal = lens.width, lens.height, lens.focal
        rows = np.arange(height) - (0.5 * height - 0.5)
        # Of the ray through each row's middle: the upward part, for one metre of depth.
        upward = math.sin(pitch) - math.cos(pitch) * rows / focal
        depth = np.where(upward < -above_m / GROUND_END_M, above_m / np.maximum(-upward, 1e-9), np.inf)
        ground = np.flatnonzero(np.isfinite(depth))
        looks_down = math.cos(pitch) >= 0
        self.horizon = int(ground[0]) if len(ground) and looks_down else height
        self.sky = _rows_of(daylight.sky(np.arctan2(-rows, focal) + pitch), width)
        self.bands: list[_Band] = []
        if self.horizon < height:
            below = depth[self.horizon :]
            share = daylight.haze_shares(below)
            share = share[share > 0.02]  # less is not seen
            self.keep = _rows_of(np.repeat((1.0 - share)[:, None], 3, axis=1) * 255.0, width)
            self.add = _rows_of(share[:, None] * daylight.haze, width)
            self.bands = self._bands(below, focal, scale)

    def _bands(self, depth: FloatArray, focal: float, scale: float) -> list[_Band]:
        """Return the rows grouped by the level whose pixels are as large as theirs."""
        across = depth / focal
        # A pixel seen at a flat angle is long; halfway between its width and length, lines along the road stay sharp.
        along = depth * depth / (focal * self.above_m)
        size = np.maximum(across, 0.5 * np.sqrt(across * along)) / scale
        level = np.clip(np.rint(np.log2(np.maximum(size, 1e-6))), 0, LEVELS - 1).astype(int)
        starts = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist()]
        least = max(2, len(depth) // 16)
        starts = [start for i, start in enumerate(starts) if i == 0 or start - starts[0] >= least]
        ends = [*starts[1:], len(depth)]
        return [
            _Band(self.horizon + a, self.horizon + b, int(level[(a + b) // 2]))
            for a, b in zip(starts, ends, strict=True)
        ]

    def draw(self, image: Image, ground: GroundImage, view: View) -> None:
        """Fill the whole image with sky and ground."""
        image[: self.horizon] = self.sky[: self.horizon]
        to_ground = view.ground_homography(self.above_m, ground.metres_per_pixel, ground.x_min, ground.y_min)
        for band in self.bands + self._slanting(view):
            rows = image[band.first : band.last]
            cv2.warpPerspective(
                ground.levels[band.level],
                _LEVELS[band.level] @ to_ground @ _below(band.first),
                (rows.shape[1], rows.shape[0]),
                rows,
                cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                cv2.BORDER_CONSTANT,
                GRASS,
            )
        if self.bands and len(self.keep):
            hazy = image[self.horizon : self.horizon + len(self.keep)]
            cv2.multiply(hazy, self.keep, hazy, 1.0 / 255.0)
            cv2.add(hazy, self.add, hazy)
        if abs(view.pose.roll) > 1e-3:
            self._tilted_sky(image, view)

    def _slanting(self, view: View) -> list[_Band]:
        """Return the rows above the level horizon in which a rolled camera sees ground at one side."""
        top = max(0, self.horizon - math.ceil(0.5 * view.lens.width * abs(math.tan(view.pose.roll))))
        return [_Band(top, self.horizon, LEVELS - 1)] if self.horizon - top >= 2 else []

    def _tilted_sky(self, image: Image, view: View) -> None:
        """Cover what a rolled camera sees above its slanting horizon."""
        forward, right, up = view.axes[:, 2]  # upward parts
        columns, rows = np.arange(view.lens.width) - view.u, np.arange(view.lens.height) - view.v
        upward = view.lens.focal * forward + columns[None] * right - rows[:, None] * up
        length = np.sqrt(view.lens.focal**2 + columns[None] ** 2 + rows[:, None] ** 2)
        above = upward >= -self.above_m / GROUND_END_M * view.lens.focal
        image[above] = np.rint(self._daylight.sky(np.arcsin(np.clip(upward / length, -1.0, 1.0))[above]))


def _rows_of(colours: FloatArray, width: int) -> Image:
    """Return an image whose rows have the colours (n, 3)."""
    filled: Image = np.repeat(np.clip(np.rint(colours), 0, 255).astype(np.uint8)[:, None], width, axis=1)
    return np.ascontiguousarray(filled)
