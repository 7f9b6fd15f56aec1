"""Light on the ground in weathers other than ClearNoon, in whose sun the ground's picture is painted.

Owns two pictures of the map from above: ClearNoon's shadows, which are removed, and the light of the present weather
with the shadows of its sun and the light of the lamps. Never touches perspective: ``backdrop`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import NOON, Daylight
from carla_lite.scenery.paint import SHADOW, GroundImage, Image, shadows
from carla_lite.scenery.statics import StaticBox

COARSE_M = 0.5
# Brightness that removes a share of ClearNoon's shadow (0 to 255) from the ground's picture.
SHADOWLESS = 1.0 / (1.0 - (1.0 - SHADOW) * np.arange(256) / 255.0)
FULL = 100
"""Value for the brightness at ClearNoon."""
LAMP_REACH_M = 11.0
LEAST_SUN = 0.02
LAMP_BGR = np.array((0.42, 0.62, 0.74))


@dataclass(frozen=True, eq=False)
class GroundLight:
    """``light`` is BGR, 100 at ClearNoon; ``shadow`` is one channel, 255 where the ground's picture has a shadow."""

    light: GroundImage | None
    """None if it is the same everywhere."""
    shadow: GroundImage
    open_ground: tuple[float, ...]
    """The light outside the map."""

    @cached_property
    def tones(self) -> Image:
        """(256, 1, 3) the light that removes each share of ClearNoon's shadow, if it is the same everywhere."""
        tones: Image = np.clip(np.rint(SHADOWLESS[:, None] * self.open_ground), 0, 255).astype(np.uint8)[:, None]
        return tones


def ground_light(noon_shadow: GroundImage, boxes: Sequence[StaticBox], daylight: Daylight) -> GroundLight:
    """Return the light on a map's ground."""
    direct = daylight.diffuse * daylight.sun[2]
    # For each share of shadow; a table, because the map has millions of pixels.
    light = (daylight.ambient + direct * (1.0 - np.arange(256)[:, None] / 255.0)) * FULL / NOON.shade(NOON.sun[2])
    open_ground, table = tuple(light[0].tolist()), np.clip(np.rint(light), 0, 255).astype(np.uint8)[:, None]
    shadowy = daylight.diffuse.max() > LEAST_SUN
    if not shadowy and not daylight.lamps:
        return GroundLight(None, noon_shadow, open_ground)
    rows, columns = noon_shadow.levels[0].shape[:2]
    fine, place = noon_shadow.metres_per_pixel, (noon_shadow.x_min, noon_shadow.y_min)
    shape = (int(rows * fine / COARSE_M) + 1, int(columns * fine / COARSE_M) + 1)
    dark = shadows(boxes, daylight.sun, shape, COARSE_M, place) if shadowy else np.zeros(shape, np.uint8)
    picture: Image = np.asarray(cv2.LUT(cv2.cvtColor(dark, cv2.COLOR_GRAY2BGR), table), np.uint8)
    if daylight.lamps:
        _add_pools(picture, [box for box in boxes if box.lamp], place, daylight.lamps * LAMP_BGR)
    return GroundLight(GroundImage((picture,), COARSE_M, *place), noon_shadow, open_ground)


def _add_pools(light: Image, lamps: Sequence[StaticBox], place: tuple[float, float], colour: FloatArray) -> None:
    reach = round(LAMP_REACH_M / COARSE_M)
    away = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1]) / reach
    pool = np.rint(FULL * np.clip(1.0 - away * away, 0.0, 1.0)[..., None] ** 2 * colour).astype(np.uint8)
    rows, columns = light.shape[:2]
    for lamp in lamps:
        column, row = round((lamp.x - place[0]) / COARSE_M), round((lamp.y - place[1]) / COARSE_M)
        if reach <= column < columns - reach and reach <= row < rows - reach:
            around = light[row - reach : row + reach + 1, column - reach : column + reach + 1]
            cv2.add(around, pool, around)
