"""The air in a picture: clouds, the glow around a low sun, and rain.

Owns three textures, made once from fixed seeds, and how they cover a picture: clouds and glow its sky, rain all of it.
Each picture of a camera has other rain, by the picture's number and never by time.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np

from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.paint import Image
from carla_lite.scenery.projection import Lens, View
from carla_lite.scenery.soft_warp import coarseness, cover, smooth, soft_warp

CLOUD_M, CLOUD_PIXEL_M, CLOUD_TILE = 900.0, 14.0, 256
"""Height of the clouds, size of their texture's pixels, and its width in pixels before it repeats."""
GLOW_ABOVE = 0.02
_GLOW_BGR = np.array((110.0, 190.0, 255.0))


class Air:
    """Draws the air of one weather for one lens."""

    def __init__(self, lens: Lens, daylight: Daylight) -> None:
        self._lens, self._daylight = lens, daylight
        self._rain = _streaks(lens, daylight) if daylight.rain > 0.0 else None
        bright = 0.55 * daylight.haze + 0.45 * 235.0 * min(1.0, float(daylight.ambient.max()) / 0.62)
        colour = bright + (0.84 * daylight.zenith - bright) * daylight.clouds
        self._cloud: Image = np.empty((lens.height, lens.width, 3), np.uint8)
        self._cloud[:] = np.clip(np.rint(colour), 0, 255)
        clouded = np.arange(256) / 255.0
        share = np.clip((clouded - (1.0 - daylight.clouds)) / 0.35, 0.0, 1.0) * (0.5 + 0.4 * daylight.clouds)
        self._share: Image = np.rint(255.0 * share).astype(np.uint8)

    def draw_sky(self, image: Image, horizon: int, view: View) -> None:
        """Draw glow and clouds into the rows above the horizon."""
        if horizon < 2:
            return
        if self._daylight.lamps < 1.0 and self._daylight.diffuse[2] > GLOW_ABOVE:
            self._draw_glow(image[:horizon], view)
        if self._daylight.clouds == 0.0:
            return
        size = image.shape[1], horizon
        to_sky = view.ground_homography(-CLOUD_M, CLOUD_PIXEL_M, 0.0, 0.0)
        share = cv2.LUT(soft_warp(noise_texture(), to_sky, size), self._share)
        share = cv2.multiply(share, self._fading(horizon, share.shape), None, 1.0 / 255.0)
        cover(image[:horizon], self._cloud[:horizon], smooth(np.asarray(share, np.uint8), size))

    def draw_rain(self, image: Image, number: int) -> None:
        """Draw the rain of a camera's picture with this number over the whole picture."""
        if self._rain is None:
            return
        height, width = image.shape[:2]
        # Two multiplicative hashes: successive pictures must not look like one moving texture.
        top, left = (number * 2654435761 >> 8) % height, (number * 2246822519 >> 8) % width
        cv2.add(image, self._rain[top : top + height, left : left + width], image)

    def _fading(self, horizon: int, shape: tuple[int, ...]) -> Image:
        """Return the share (of 255) of the clouds that remains towards the horizon, where haze hides them."""
        elevation = (horizon - coarseness(self._lens.width) * np.arange(shape[0])) / self._lens.focal
        faded = np.clip(1.0 - np.exp(-elevation / 0.12), 0.0, 1.0) * 255.0
        rows: Image = np.repeat(faded.astype(np.uint8)[:, None], shape[1], axis=1)
        return rows

    def _draw_glow(self, rows: Image, view: View) -> None:
        u, v, depth = (view.matrix @ self._daylight.sun).tolist()
        if depth < 0.05 or self._daylight.sun[2] > 0.5:
            return
        size = 2 * round(0.45 * self._lens.focal) + 1
        strength = min(1.0, float(self._daylight.diffuse[2]) / 0.4)
        left, top = round(u / depth) - size // 2, round(v / depth) - size // 2
        x, y = max(left, 0), max(top, 0)
        part = rows[y : max(top + size, 0), x : max(left + size, 0)]
        if part.size:
            glow = _glow(size, round(10.0 * strength))[y - top :, x - left :][: part.shape[0], : part.shape[1]]
            cv2.add(part, np.ascontiguousarray(glow), part)


@cache
def noise_texture() -> Image:
    """Return one channel that repeats seamlessly: noise of four sizes."""
    rng = np.random.default_rng(0xC10D)
    total = np.zeros((CLOUD_TILE, CLOUD_TILE), np.float32)
    for octave in range(4):
        cells = 8 << octave
        noise = np.pad(rng.normal(0.0, 0.6**octave, (cells, cells)).astype(np.float32), 2, mode="wrap")
        grown = cv2.resize(noise, None, fx=CLOUD_TILE / cells, fy=CLOUD_TILE / cells, interpolation=cv2.INTER_CUBIC)
        edge = 2 * CLOUD_TILE // cells
        total += grown[edge : edge + CLOUD_TILE, edge : edge + CLOUD_TILE]
    ranks = total.ravel().argsort().argsort().reshape(total.shape)
    texture: Image = (ranks * 255 // (total.size - 1)).astype(np.uint8)
    return texture


@cache
def _glow(size: int, tenths: int) -> Image:
    """Return a disc of light with a halo, to be added to the sky."""
    away = np.hypot(*np.mgrid[-1.0 : 1.0 : size * 1j, -1.0 : 1.0 : size * 1j])
    halo = np.clip(1.0 - away, 0.0, 1.0) ** 2 * 0.55 + np.clip((0.1 - away) / 0.03, 0.0, 1.0)
    lit: Image = np.clip(np.rint(halo[..., None] * _GLOW_BGR * tenths / 10.0), 0, 255).astype(np.uint8)
    return lit


def _streaks(lens: Lens, daylight: Daylight) -> Image:
    """Return a texture of drops, twice the picture's height and width, to be added to the picture."""
    height, width = 2 * lens.height, 2 * lens.width
    rng = np.random.default_rng(0xD209)
    texture: Image = np.zeros((height, width, 3), np.uint8)
    count = round(daylight.rain * 520.0 * max(1.0, width / 800.0))
    bright = 18.0 + 34.0 * min(1.0, float(daylight.ambient.mean()) / 0.62)
    slant = 0.35 * daylight.wind
    for x, y, near in zip(
        rng.uniform(0, width, count), rng.uniform(0, height, count), rng.uniform(0.3, 1.0, count), strict=True
    ):
        long = near * near * 0.08 * lens.height + 2.0
        end = round(x + slant * long), round(y + long)
        thickness = max(1, round(near * lens.height / 450.0))
        cv2.line(texture, (round(x), round(y)), end, [bright * near] * 3, thickness, cv2.LINE_AA)
    return texture
