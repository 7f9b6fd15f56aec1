"""What falls on the ground in a weather other than ClearNoon, whose sun the ground's picture was painted in.

Owns two pictures of the map from above: ClearNoon's shadows, to be taken out again, and the light of the present
weather with the shadows of its own sun and the pools under the lamps. Never touches perspective: ``backdrop`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import NOON, Daylight
from carla_lite.scenery.paint import GroundImage, Image, shadows
from carla_lite.scenery.statics import StaticBox

COARSE_M = 0.5
FULL = 100
"""The value that means as bright as at ClearNoon."""
LAMP_REACH_M = 11.0
LAMP_BGR = np.array((0.42, 0.62, 0.74))


@dataclass(frozen=True, eq=False)
class GroundLight:
    """``light`` is BGR, 100 for ClearNoon's; ``shadow`` is one channel, 255 where the ground's picture has a shadow."""

    light: GroundImage
    shadow: GroundImage
    open_ground: tuple[float, ...]
    """The light where no map is."""


def ground_light(noon_shadow: GroundImage, boxes: Sequence[StaticBox], daylight: Daylight) -> GroundLight:
    """Return the light on a map's ground."""
    rows, columns = noon_shadow.levels[0].shape[:2]
    fine = noon_shadow.metres_per_pixel
    shape = (int(rows * fine / COARSE_M) + 1, int(columns * fine / COARSE_M) + 1)
    place = noon_shadow.x_min, noon_shadow.y_min
    dark = np.zeros(shape, np.uint8)
    if daylight.diffuse.max() > 0.02:
        dark = shadows(boxes, daylight.sun, shape, COARSE_M, place)
    full = NOON.shade(NOON.sun[2])
    direct = daylight.diffuse * daylight.sun[2]
    light = daylight.ambient + direct * (1.0 - dark[..., None] * np.float32(1.0 / 255.0))
    light /= full
    if daylight.lamps > 0.0:
        _add_pools(light, [box for box in boxes if box.lamp], place, daylight.lamps * LAMP_BGR)
    picture: Image = np.clip(np.rint(light * FULL), 0, 255).astype(np.uint8)
    open_ground = tuple(((daylight.ambient + direct) / full * FULL).tolist())
    return GroundLight(GroundImage((picture,), COARSE_M, *place), noon_shadow, open_ground)


def _add_pools(light: FloatArray, lamps: Sequence[StaticBox], place: tuple[float, float], colour: FloatArray) -> None:
    reach = round(LAMP_REACH_M / COARSE_M)
    away = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1]) / reach
    pool = np.clip(1.0 - away * away, 0.0, 1.0)[..., None] ** 2 * colour
    rows, columns = light.shape[:2]
    for lamp in lamps:
        column, row = round((lamp.x - place[0]) / COARSE_M), round((lamp.y - place[1]) / COARSE_M)
        if reach <= column < columns - reach and reach <= row < rows - reach:
            light[row - reach : row + reach + 1, column - reach : column + reach + 1] += pool
