"""A camera's picture of the scene: sky, ground, then boxes from far to near.

Owns the order of drawing. Projection, the backdrop and the shapes are in the modules below; ``surfaces`` has everything
but colours. Never touches physics or the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.scenery.air import Air
from carla_lite.scenery.backdrop import Backdrop
from carla_lite.scenery.daylight import NOON, Daylight
from carla_lite.scenery.drawings import Drawing, drawing_strokes, write_strings
from carla_lite.scenery.paint import Image
from carla_lite.scenery.people import People
from carla_lite.scenery.projection import Lens, Pose, View
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.strokes import (
    SUB,
    BoxActor,
    Drawn,
    Moving,
    Stroke,
    actor_strokes,
    beam_strokes,
    still_strokes,
)
from carla_lite.scenery.vista import Vista

__all__ = ["BoxActor", "Camera", "Conditions", "Drawn", "Look", "Pose"]

_BACKDROPS = 128
THREADS_FROM_PX, ALL_THREADS = 200_000, -1
SMOOTH_FROM_PX = 200  # smaller images are for networks, and smooth edges cost as much as everything else


@dataclass(frozen=True)
class Conditions:
    """Properties of one tick that all cameras share, besides things that stand or move."""

    daylight: Daylight = NOON
    drawings: Sequence[Drawing] = ()


@dataclass(slots=True)
class Look:
    """The view from one pose through one lens at one moment; cameras with the same pose and lens share it."""

    scene: Scene
    view: View
    backdrop: Backdrop
    vista: Vista
    moving: Moving
    strokes: list[Stroke]
    """Strokes from far to near."""


class Camera:
    """A pinhole camera with square pixels; ``fov_deg`` is the horizontal field of view."""

    def __init__(self, width: int, height: int, fov_deg: float) -> None:
        self.lens = Lens.of(width, height, fov_deg)
        self._canvas: Image = np.zeros((height, width, 3), np.uint8)
        # Number of the picture, by which rain falls: the simulator's frame number may be anything at the first picture.
        self._pictures = 0
        self._last_air: tuple[Daylight, Air] | None = None
        self._backdrops: dict[tuple[int, int, float, Daylight], Backdrop] = {}

    def render(
        self,
        scene: Scene,
        pose: Pose,
        actors: Sequence[Drawn],
        conditions: Conditions = Conditions(),
        beaming: Sequence[Drawn] = (),
    ) -> Image:
        """Return the image: (height, width, 4) BGRA, C-contiguous, a new array each time.

        Args:
            scene: the static things.
            pose: of the camera.
            actors: vehicles, people nearby, and the heads and plates of signs that may be visible.
            conditions: light, air, and clients' drawings.
            beaming: vehicles whose head lamps light the ground, visible or not.
        """
        look = self.look(scene, View(pose, self.lens), actors, conditions.daylight)
        return self.picture(look, conditions, beaming)

    def look(
        self,
        scene: Scene,
        view: View,
        actors: Sequence[Drawn],
        daylight: Daylight = NOON,
        people: People | None = None,
    ) -> Look:
        """Return what is seen, not yet drawn; the arguments are those of :meth:`render`, and distant people."""
        pose = view.pose
        above_m = pose.z - scene.height(pose.x, pose.y, pose.z)
        backdrop = self._backdrop(above_m, pose.pitch, scene.metres_per_pixel, daylight)
        vista = scene.vistas.at(pose.x, pose.y, pose.z, self.lens.focal, daylight)
        moving = actor_strokes(actors, people, vista.walls, view, daylight, len(vista.keys))
        still = still_strokes(vista, scene.mesh, view, daylight.lamps)
        return Look(scene, view, backdrop, vista, moving, _sorted(still, moving.strokes))

    def picture(self, look: Look, conditions: Conditions = Conditions(), beaming: Sequence[Drawn] = ()) -> Image:
        """Return the image of a view; its lens must be this camera's."""
        self._pictures += 1
        use_threads(self.lens)
        scene, view, daylight = look.scene, look.view, conditions.daylight
        light, beams = None, []
        if daylight is not NOON:
            light = scene.light(daylight)
            beams = beam_strokes(beaming, view) if daylight.lamps else []
        look.backdrop.draw(self._canvas, scene.ground, view, light, beams)
        air = None if daylight is NOON else self._air(daylight)
        if air is not None:
            air.draw_sky(self._canvas, look.backdrop.horizon, view)
        strokes = look.strokes
        if conditions.drawings:
            strokes = _sorted(strokes, drawing_strokes(conditions.drawings, look.vista.walls, view))
        fill(self._canvas, strokes, cv2.LINE_AA if self.lens.height >= SMOOTH_FROM_PX else cv2.LINE_8)
        if air is not None:
            air.draw_rain(self._canvas, self._pictures)
        if conditions.drawings:
            write_strings(self._canvas, conditions.drawings, view)
        image: Image = np.empty((self.lens.height, self.lens.width, 4), np.uint8)
        cv2.cvtColor(self._canvas, cv2.COLOR_BGR2BGRA, image)
        return image

    def _air(self, daylight: Daylight) -> Air:
        if self._last_air is None or self._last_air[0] is not daylight:
            self._last_air = daylight, Air(self.lens, daylight)
        return self._last_air[1]

    def _backdrop(self, above_m: float, pitch: float, scale: float, daylight: Daylight) -> Backdrop:
        """Return the backdrop for a height and pitch, rounded to a centimetre and a twentieth of a pixel."""
        step = 0.05 / self.lens.focal
        key = (max(1, round(100.0 * above_m)), round(pitch / step), scale, daylight)
        if key not in self._backdrops:
            if len(self._backdrops) >= _BACKDROPS:
                self._backdrops.pop(next(iter(self._backdrops)))
            self._backdrops[key] = Backdrop(self.lens, key[0] / 100.0, key[1] * step, scale, daylight)
        return self._backdrops[key]


def use_threads(lens: Lens) -> None:
    """Let OpenCV draw an image of this size with a suitable number of threads.

    For a small image, waiting for several threads takes longer than the drawing, at the cost of a whole core.
    """
    cv2.setNumThreads(ALL_THREADS if lens.width * lens.height >= THREADS_FROM_PX else 1)


def _sorted(strokes: list[Stroke], more: list[Stroke]) -> list[Stroke]:
    """Return all strokes from far to near; equal keys keep their order, as the panels of one car have."""
    return sorted(strokes + more, key=itemgetter(0), reverse=True) if more else strokes


def fill(canvas: NDArray[Any], strokes: Sequence[Stroke], line: int) -> None:
    """Draw strokes, which are in order, into an image with as many channels as their colours."""
    one = cv2.fillConvexPoly  # looked up once
    for _, outline, colour, _ in strokes:
        if outline.ndim == 2:
            one(canvas, outline, colour, line, SUB)
        else:
            cv2.fillPoly(canvas, list(outline), colour, line, SUB)


def number(pixels: NDArray[np.int32], strokes: Sequence[Stroke], wanted: Sequence[int], first: int) -> None:
    """Draw the wanted strokes with numbers from ``first`` on, the others with 0."""
    one = cv2.fillConvexPoly
    code = first
    for (_, outline, _, _), fills in zip(strokes, wanted, strict=True):
        if fills:
            one(pixels, outline, code, cv2.LINE_8, SUB)
            code += 1
