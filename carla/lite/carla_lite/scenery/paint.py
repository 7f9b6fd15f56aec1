"""The ground as a picture from above: terrain, asphalt, sidewalks, kerbs, painted lines and shadows.

Owns the raster and its coarser levels. Never touches perspective: ``camera`` warps it. Deterministic by seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads import polyline
from carla_lite.roads.canvas import SUB, Canvas
from carla_lite.roads.lanes import Marking
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import SUN
from carla_lite.scenery.statics import TAG_BUILDING, TAG_POLE, StaticBox
from carla_lite.scenery.zebra import painted_on

Image = NDArray[np.uint8]

MARGIN_M = 30.0
FINEST_M = 0.1
MAX_PIXELS = 36_000_000  # 108 MB of BGR, 144 MB with the coarser levels
LEVELS = 6
BLOCK = 512  # rows that are computed at once; also the side of the tile of grain
SUPERSAMPLING = 4  # lines are drawn with this many times the resolution, in both directions
PART = 12  # samples of a solid line that are drawn as one piece
DASH_M, GAP_M = 3.0, 4.5
THINNEST_LINE_M = 0.15  # a line of 0.125 m is hardly visible at 84 × 84

# CityObjectLabels of the ground.
TAG_ROAD, TAG_SIDEWALK, TAG_TERRAIN, TAG_LINE = 1, 2, 10, 24

GRASS = (78, 128, 104)
SURFACES = ((GRASS, 9.0), ((172, 178, 182), 3.0), ((206, 210, 212), 1.0), ((88, 86, 84), 3.3))
"""BGR colour and strength of the texture of terrain, sidewalks, kerbs and asphalt."""
ASPHALT = 3
_TAGS = np.zeros(256, np.uint8)
_TAGS[:4] = TAG_TERRAIN, TAG_SIDEWALK, TAG_SIDEWALK, TAG_ROAD
SHADOW = 0.62  # brightness in the shadow, relative to the ground outside it
COLOURS = {"yellow": (60, 190, 232), "white": (235, 238, 240), "standard": (235, 238, 240)}


_HALF = 128  # coverage, of 255, from which a pixel counts as painted

_TURN = np.linspace(0.0, math.tau, 12, endpoint=False)
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)


@dataclass(frozen=True)
class GroundImage:
    """A picture of the ground from above: rows along y, columns along x. A pixel of level k is 2^k of level 0 wide."""

    levels: tuple[Image, ...]
    metres_per_pixel: float
    x_min: float
    y_min: float


def paint(network: RoadNetwork, boxes: Sequence[StaticBox], seed: int) -> GroundImage:
    """Return the ground of a network with the shadows of static things, ``resolution_m`` metres per pixel."""
    canvas = _Ground.of(network)
    rng = np.random.default_rng([seed, 0x6A55])

    surfaces = _surfaces(network, canvas)
    image = _textured(surfaces, rng)
    cv2.GaussianBlur(image, (3, 3), 0.8, image)  # smooth edges; lines are already painted smooth
    for colour in sorted({COLOURS.get(marking.color, COLOURS["white"]) for marking in network.markings}):
        painted = [m for m in network.markings if COLOURS.get(m.color, COLOURS["white"]) == colour]
        _cover(image, canvas.lines(painted), colour)
    for outline in painted_on(network.crossings):
        window, covered = canvas.coverage(outline)
        covered[surfaces[window] != ASPHALT] = 0
        _cover(image[window], covered, COLOURS["white"])
    shadow = canvas.mask(_shadows(boxes, SUN), soft=True)
    for rows in _blocks(canvas.shape[0]):
        cv2.copyTo(cv2.convertScaleAbs(image[rows], alpha=SHADOW), shadow[rows], image[rows])
    return GroundImage(tuple(_pyramid(image)), canvas.scale, canvas.x, canvas.y)


def label(network: RoadNetwork) -> GroundImage:
    """Return the CityObjectLabels of a network's ground, in one level and channel.

    A pixel is a line if at least half of it is painted.
    """
    canvas = _Ground.of(network)
    surfaces = _surfaces(network, canvas)
    tags = np.asarray(cv2.LUT(surfaces, _TAGS), np.uint8)
    tags[canvas.lines(network.markings) >= _HALF] = TAG_LINE
    for outline in painted_on(network.crossings):
        window, covered = canvas.coverage(outline)
        tags[window][(covered >= _HALF) & (surfaces[window] == ASPHALT)] = TAG_LINE
    return GroundImage((tags,), canvas.scale, canvas.x, canvas.y)


def noon_shadow(ground: GroundImage, boxes: Sequence[StaticBox]) -> GroundImage:
    """Return a mask of the shadows at noon, as large as ``ground``: one channel, 255 in a shadow."""
    shape, place = ground.levels[0].shape[:2], (ground.x_min, ground.y_min)
    mask = shadows(boxes, SUN, (shape[0], shape[1]), ground.metres_per_pixel, place)
    return GroundImage(tuple(_pyramid(mask)), ground.metres_per_pixel, *place)


def shadows(
    boxes: Sequence[StaticBox], sun: FloatArray, shape: tuple[int, int], scale: float, place: tuple[float, float]
) -> Image:
    """Return 255 where a box hides the sun, seen from above with ``scale`` metres per pixel."""
    return Canvas(shape, scale, *place).mask(_shadows(boxes, sun), soft=True)


def scale_of(network: RoadNetwork) -> float:
    """Return the metres per pixel of a network's pictures, without making one."""
    return _Ground.of(network).scale


def resolution_m(width_m: float, height_m: float) -> float:
    """Return the metres per pixel for ground of this size: ``FINEST_M``, or more if ``MAX_PIXELS`` requires it."""
    return max(FINEST_M, math.sqrt(width_m * height_m / MAX_PIXELS))


class _Ground(Canvas):
    """Canvas for the ground of a map. It also draws things thinner than a pixel."""

    @classmethod
    def of(cls, network: RoadNetwork) -> _Ground:
        """Return a canvas for a whole network, with ``resolution_m`` metres per pixel."""
        x_min, y_min, x_max, y_max = network.bounds
        x_min, y_min, x_max, y_max = x_min - MARGIN_M, y_min - MARGIN_M, x_max + MARGIN_M, y_max + MARGIN_M
        scale = resolution_m(x_max - x_min, y_max - y_min)
        shape = (math.ceil((y_max - y_min) / scale), math.ceil((x_max - x_min) / scale))
        return cls(shape, scale, x_min, y_min)

    def lines(self, markings: Iterable[Marking]) -> Image:
        """Return how much of each pixel is painted, 0 to 255. Kerbs are not lines: ``_surfaces`` makes them."""
        covered: Image = np.zeros(self.shape, np.uint8)
        for marking in markings:
            half = 0.5 * max(marking.width_m, THINNEST_LINE_M, self.scale) - 0.5 * self.scale / SUPERSAMPLING
            for piece in _pieces(marking):
                window, share = self.coverage(_ribbon(piece, half))
                np.maximum(covered[window], share, out=covered[window])
        return covered

    def coverage(self, outline: FloatArray) -> tuple[tuple[slice, slice], Image]:
        """Return the window around a small outline (n, 2), and how much of each pixel is inside, 0 to 255.

        It is drawn at a higher resolution, then averaged: OpenCV's own smooth edges are wrong by up to half a pixel.
        """
        places = (outline - (self.x, self.y)) / self.scale
        low = np.maximum(np.floor(places.min(axis=0)).astype(int) - 1, 0)
        high = np.minimum(np.ceil(places.max(axis=0)).astype(int) + 1, self.shape[::-1])
        columns, rows = (high - low).tolist()
        if min(columns, rows) <= 0:  # off the map
            return (slice(0, 0), slice(0, 0)), np.zeros((0, 0), np.uint8)
        fine = np.zeros((rows * SUPERSAMPLING, columns * SUPERSAMPLING), np.uint8)
        cv2.fillPoly(
            fine, [np.rint(((places - low) * SUPERSAMPLING - 0.5) * (1 << SUB)).astype(np.int32)], 255, cv2.LINE_8, SUB
        )
        share = np.asarray(cv2.resize(fine, (columns, rows), interpolation=cv2.INTER_AREA), np.uint8)
        return (slice(low[1], high[1]), slice(low[0], high[0])), share


def _cover(image: Image, covered: Image, colour: tuple[int, int, int]) -> None:
    rows, columns = np.divmod(np.flatnonzero(covered), covered.shape[1])
    share = covered[rows, columns, None] / 255.0
    image[rows, columns] = np.rint(image[rows, columns] * (1.0 - share) + np.array(colour) * share)


def _pieces(marking: Marking) -> Iterator[FloatArray]:
    """Yield each dash of a broken line, or a solid line in parts of ``PART`` samples; nothing for other kinds."""
    points = marking.points[:, :2]
    if marking.kind == "solid":
        for start in range(0, len(points) - 1, PART):
            yield points[start : start + PART + 2]
    if marking.kind != "broken":
        return
    along = polyline.along(points)
    for start in np.arange(0.5 * GAP_M, along[-1] - 0.5, DASH_M + GAP_M):
        end = min(start + DASH_M, along[-1])
        inner = along[(along > start) & (along < end)]
        yield polyline.sampled(points, along, np.concatenate([[start], inner, [end]]))


def _ribbon(points: FloatArray, half: float) -> FloatArray:
    """Return the outline of a line with a given half width (m)."""
    tangent = np.gradient(points, axis=0)
    tangent /= np.maximum(np.linalg.norm(tangent, axis=1, keepdims=True), 1e-9)
    aside = half * np.stack([-tangent[:, 1], tangent[:, 0]], axis=1)
    return np.concatenate([points + aside, (points - aside)[::-1]])


def _shadows(boxes: Sequence[StaticBox], sun: FloatArray) -> Iterator[FloatArray]:
    """Yield the outline of each box's shadow on the ground."""
    away = sun[:2] / sun[2]
    for box in boxes:
        corners = np.array(box.corners())
        if box.tag not in (TAG_BUILDING, TAG_POLE):  # crowns are drawn as discs
            yield _CIRCLE * box.half_length_m + (np.array((box.x, box.y)) - away * box.z)
            continue
        bottom = (box.z - box.half_height_m) * away
        top = (box.z + box.half_height_m) * away
        both = np.concatenate([corners - bottom, corners - top]).astype(np.float32)
        yield cv2.convexHull(both).reshape(-1, 2).astype(np.float64)


def _surfaces(network: RoadNetwork, canvas: Canvas) -> Image:
    """Return each pixel's surface, an index of ``SURFACES``. Asphalt covers sidewalks; kerbs lie between them."""
    surfaces = canvas.sidewalks(network.lanes) // 255
    asphalt = canvas.road(network.lanes)
    thickness = max(3, 2 * round(0.15 / canvas.scale) + 1)
    kerb = cv2.dilate(asphalt, np.ones((thickness, thickness), np.uint8))
    surfaces[(kerb > 0) & (surfaces > 0)] = 2
    surfaces[asphalt > 0] = ASPHALT
    return surfaces


def _textured(surfaces: Image, rng: np.random.Generator) -> Image:
    """Return the surfaces' colours with fine grain (one repeated tile) and broad patches of brightness."""
    rows, columns = surfaces.shape
    grain = cv2.GaussianBlur(rng.normal(0.0, 1.0, (BLOCK, BLOCK)).astype(np.float32), (3, 3), 0.7)
    grain = np.tile(grain, (1, columns // BLOCK + 1))[:, :columns]
    coarse = rng.normal(0.0, 1.0, (rows // 120 + 2, columns // 120 + 2)).astype(np.float32)
    patches = cv2.resize(coarse, (columns, rows), interpolation=cv2.INTER_CUBIC)
    # Tables of 256 entries for OpenCV's look-ups, which are several times as fast as numpy's.
    colours, strength = np.zeros((256, 1, 3), np.uint8), np.zeros((256, 1), np.float32)
    for index, (colour, grainy) in enumerate(SURFACES):
        colours[index], strength[index] = colour, grainy
    image: Image = np.empty((rows, columns, 3), np.uint8)
    for block in _blocks(rows):
        noise = (grain[: len(patches[block])] + patches[block]) * cv2.LUT(surfaces[block], strength)
        layers = cv2.merge([noise.astype(np.int16)] * 3)
        cv2.add(cv2.applyColorMap(surfaces[block], colours), layers, image[block], dtype=cv2.CV_8U)
    return image


def _blocks(rows: int) -> Iterator[slice]:
    """Yield slices of ``BLOCK`` rows, so that a computation on a large image needs little extra memory."""
    yield from (slice(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK))


def _pyramid(image: Image) -> Iterator[Image]:
    yield image
    for _ in range(LEVELS - 1):
        rows, columns = image.shape[:2]
        # Cut to even sizes so that a coarser pixel is exactly four finer ones, and places agree between levels.
        even = image[: rows & ~1, : columns & ~1]
        image = np.asarray(cv2.resize(even, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)
        yield image
