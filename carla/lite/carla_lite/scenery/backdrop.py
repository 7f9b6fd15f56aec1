"""The backdrop of a picture: sky and ground, for one height and pitch of a camera.

Owns the rows of the image: which show sky or ground, which level of the ground's picture each uses, and how hazy each
is. Never touches boxes. Has no pose: a camera keeps one backdrop for each height and pitch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.air import noise_texture
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.ground_light import FULL, SHADOWLESS, GroundLight
from carla_lite.scenery.paint import GRASS, LEVELS, TAG_TERRAIN, GroundImage, Image
from carla_lite.scenery.projection import Lens, View
from carla_lite.scenery.soft_warp import coarseness, cover, smooth, soft_warp
from carla_lite.scenery.strokes import SUB, Stroke

GROUND_END_M = 600.0
TAG_SKY = 11
# From a roll of 60° on, an image's row doesn't tell the distance of its ground.
_OVER, _ANY_LEVEL = 0.5, 2
PUDDLE_PIXEL_M, PUDDLES_M = 0.15, 14.0
"""Size of a pixel of the puddles' texture, and the distance up to which single puddles are visible."""

# 128 times the brightness that removes a share of ClearNoon's shadow (0 to 255) from the ground's picture.
_LIGHTER = np.rint(128.0 * SHADOWLESS).astype(np.uint8)


# From pixels of the finest level to those of level k, which are 2^k as wide; pixel centres are whole numbers in both.
_LEVELS = [
    np.array(((half, 0.0, 0.5 * half - 0.5), (0.0, half, 0.5 * half - 0.5), (0.0, 0.0, 1.0)))
    for half in (0.5**level for level in range(LEVELS))
]


def _below(row: int) -> FloatArray:
    """Return the shift from pixels of an image's lower part, which begins at ``row``, to pixels of the image."""
    return np.array(((1.0, 0.0, 0.0), (0.0, 1.0, row), (0.0, 0.0, 1.0)))


@dataclass(frozen=True)
class _Band:
    """Rows that use one level of the ground's picture."""

    first: int
    last: int
    level: int


class _Bands:
    """Several bands, with the transform from the image to the ground's picture for each band's level."""

    def __init__(self, parts: Sequence[_Band]) -> None:
        self.parts = tuple(parts)
        self._before = np.array([_LEVELS[band.level] for band in parts]).reshape(-1, 3, 3)
        self._after = np.array([_below(band.first) for band in parts]).reshape(-1, 3, 3)

    def ways(self, to_ground: FloatArray) -> FloatArray:
        """Return (n, 3, 3), all bands in one product, since a call costs more than its sums."""
        ways: FloatArray = self._before @ to_ground @ self._after
        return ways


class Backdrop:
    """Sky and ground seen from ``above_m`` over the ground at ``pitch`` (rad); ``scale`` is the ground's metres per
    pixel.
    """

    def __init__(self, lens: Lens, above_m: float, pitch: float, scale: float, daylight: Daylight) -> None:
        self.above_m, self._daylight = above_m, daylight
        width, height, focal = lens.width, lens.height, lens.focal
        rows = np.arange(height) - (0.5 * height - 0.5)
        # For the ray through each row's centre: its upward part per metre of depth.
        upward = math.sin(pitch) - math.cos(pitch) * rows / focal
        depth = np.where(upward < -above_m / GROUND_END_M, above_m / np.maximum(-upward, 1e-9), np.inf)
        ground = np.flatnonzero(np.isfinite(depth))
        looks_down = math.cos(pitch) >= 0
        self.horizon = int(ground[0]) if len(ground) and looks_down else height
        self.sky = _rows_of(daylight.sky(np.arctan2(-rows, focal) + pitch), width)
        self.bands = _Bands(())
        if self.horizon < height:
            below = depth[self.horizon :]
            if daylight.wet > 0.0:
                self._wet(below, width)
            share = daylight.haze_shares(below)
            share = share[share > 0.02]  # less is invisible
            self.keep = _rows_of(np.repeat((1.0 - share)[:, None], 3, axis=1) * 255.0, width)
            self.add = _rows_of(share[:, None] * daylight.haze, width)
            self.bands = _Bands(self._bands(below, focal, scale))

    def _wet(self, depth: FloatArray, width: int) -> None:
        """Prepare the reflection of wet ground at these depths, and the shares of puddles and of the rest."""
        wet = self._daylight.wet
        self._mirrored = _rows_of(0.92 * self._daylight.sky(np.arctan2(self.above_m, depth)), width)
        depth = depth[:: coarseness(width)]
        gleam = wet * (0.16 + 0.8 * (1.0 - np.sin(np.arctan2(self.above_m, depth))) ** 3)
        puddles = np.clip((np.arange(256) / 255.0 - 1.0 + 0.5 * wet) / 0.08, 0.0, 1.0) * 0.7 + 0.3
        near = np.clip(PUDDLES_M / depth, 0.0, 1.0)[:, None]
        shares = 255.0 * gleam[:, None] * (puddles.mean() + (puddles - puddles.mean()) * near)
        self._gleam: Image = np.clip(np.rint(shares), 0, 255).astype(np.uint8)  # (coarse row, noise)

    def _bands(self, depth: FloatArray, focal: float, scale: float) -> list[_Band]:
        """Return the rows grouped by the level whose pixels have their size."""
        across = depth / focal
        # A pixel seen at a flat angle is long. With a size halfway between its width and length, lines along the road
        # stay sharp.
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

    def draw(
        self, image: Image, ground: GroundImage, view: View, light: GroundLight | None, beams: Sequence[Stroke] = ()
    ) -> None:
        """Fill the whole image with sky and ground.

        Args:
            light: of the ground; None at ClearNoon.
            beams: patches of the ground with the light that they add.
        """
        image[: self.horizon] = self.sky[: self.horizon]
        slanting = self._slanting(view)
        bands = _Bands([*self.bands.parts, *slanting]) if slanting else self.bands
        self._warp(ground, bands, view, image, GRASS)
        if light is not None and bands.parts:
            self._relight(image, light, bands, view, beams)
        if self.bands.parts and self._daylight.wet > 0.0:
            self._gleam_on(image[self.horizon :], view)
        if self.bands.parts and len(self.keep):
            hazy = image[self.horizon : self.horizon + len(self.keep)]
            cv2.multiply(hazy, self.keep, hazy, 1.0 / 255.0)
            cv2.add(hazy, self.add, hazy)
        if abs(view.pose.roll) > 1e-3:
            self._tilted_sky(image, view)

    def label(self, image: Image, labels: GroundImage, view: View) -> None:
        """Fill the whole image (rows, columns) with the CityObjectLabels of sky and ground."""
        image[: self.horizon] = TAG_SKY
        top = min((band.first for band in (*self.bands.parts, *self._slanting(view))), default=len(image))
        if top < len(image):
            whole = _Bands([_Band(top, len(image), 0)])
            self._warp(labels, whole, view, image, (TAG_TERRAIN,), cv2.INTER_NEAREST)
        if abs(view.pose.roll) > 1e-3:
            image[self._above_horizon(view)] = TAG_SKY

    def _warp(
        self,
        picture: GroundImage,
        bands: _Bands,
        view: View,
        image: Image,
        border: Sequence[float],
        sampling: int = cv2.INTER_LINEAR,
    ) -> None:
        """Draw a picture of the ground in perspective into some rows."""
        to_ground = view.ground_homography(self.above_m, picture.metres_per_pixel, picture.x_min, picture.y_min)
        for band, way in zip(bands.parts, bands.ways(to_ground), strict=True):
            rows = image[band.first : band.last]
            cv2.warpPerspective(
                picture.levels[band.level],
                way,
                (rows.shape[1], rows.shape[0]),
                rows,
                sampling | cv2.WARP_INVERSE_MAP,
                cv2.BORDER_CONSTANT,
                border,
            )

    def _relight(self, image: Image, light: GroundLight, bands: _Bands, view: View, beams: Sequence[Stroke]) -> None:
        """Remove ClearNoon's shadows and apply this weather's light."""
        top = min(band.first for band in bands.parts)
        rows, size = image[top:], (image.shape[1], len(image) - top)
        shadow = np.empty(image.shape[:2], np.uint8)
        self._warp(light.shadow, bands, view, shadow, (0,))
        wet = 1.0 - 0.3 * self._daylight.wet
        if light.light is None:
            gain = cv2.LUT(cv2.cvtColor(shadow[top:], cv2.COLOR_GRAY2BGR), light.tones)
            cv2.multiply(rows, gain, rows, wet / FULL)
            return
        shown = light.light
        to_light = view.ground_homography(self.above_m, shown.metres_per_pixel, shown.x_min, shown.y_min) @ _below(top)
        gain = soft_warp(shown.levels[0], to_light, size, light.open_ground)
        if beams:
            step = coarseness(size[0])
            shone = np.zeros_like(gain)
            for _, outline, colour, _ in beams:
                cv2.fillConvexPoly(shone, (outline - (0, top << SUB)) // step, colour, cv2.LINE_8, SUB)
            cv2.add(gain, cv2.blur(shone, (3, 3)), gain)
        gain = smooth(gain, size)
        bright = cv2.LUT(cv2.cvtColor(shadow[top:], cv2.COLOR_GRAY2BGR), _LIGHTER)
        cv2.multiply(gain, bright, gain, 1.0 / 128.0)
        cv2.multiply(rows, gain, rows, wet / FULL)

    def _gleam_on(self, rows: Image, view: View) -> None:
        """Mirror the sky in wet ground: more of it at a flat angle, and in puddles."""
        to_tile = view.ground_homography(self.above_m, PUDDLE_PIXEL_M, 0.0, 0.0) @ _below(self.horizon)
        size = rows.shape[1], rows.shape[0]
        noise = soft_warp(noise_texture(), to_tile, size)
        share = self._gleam[np.arange(len(noise))[:, None], noise]
        cover(rows, self._mirrored, smooth(share, size))

    def _slanting(self, view: View) -> list[_Band]:
        """Return the rows above the level horizon in which a rolled camera sees ground on one side."""
        if math.cos(view.pose.roll) < _OVER:
            return [_Band(0, self.horizon, _ANY_LEVEL)] if self.horizon else []
        top = max(0, self.horizon - math.ceil(0.5 * view.lens.width * abs(math.tan(view.pose.roll))))
        return [_Band(top, self.horizon, LEVELS - 1)] if self.horizon - top >= 2 else []

    def _tilted_sky(self, image: Image, view: View) -> None:
        """Cover the sky that a rolled camera sees above its slanting horizon."""
        columns, rows = np.arange(view.lens.width) - view.u, np.arange(view.lens.height) - view.v
        length = np.sqrt(view.lens.focal**2 + columns[None] ** 2 + rows[:, None] ** 2)
        elevation = np.arcsin(np.clip(_upward(view) / length, -1.0, 1.0))
        above = self._above_horizon(view)
        image[above] = np.rint(self._daylight.sky(elevation[above]))

    def _above_horizon(self, view: View) -> NDArray[np.bool_]:
        above: NDArray[np.bool_] = _upward(view) >= -self.above_m / GROUND_END_M * view.lens.focal
        return above


def _upward(view: View) -> FloatArray:
    """Return (rows, columns) the upward part of the ray through each pixel, per focal length of depth."""
    forward, right, up = (axis[2] for axis in view.axes)
    columns, rows = np.arange(view.lens.width) - view.u, np.arange(view.lens.height) - view.v
    upward: FloatArray = view.lens.focal * forward + columns[None] * right - rows[:, None] * up
    return upward


def _rows_of(colours: FloatArray, width: int) -> Image:
    """Return an image whose rows have the colours (n, 3)."""
    filled: Image = np.repeat(np.clip(np.rint(colours), 0, 255).astype(np.uint8)[:, None], width, axis=1)
    return np.ascontiguousarray(filled)
