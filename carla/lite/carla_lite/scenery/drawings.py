"""Clients' drawings in the world: lines, arrows, boxes, points and strings, for a time or for ever.

Owns their shapes, duration and look. As in CARLA, nearer things hide them; only strings are drawn over everything. They
neither cast nor receive light.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.paint import Image
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.strokes import NO_FACE, Stroke, pixels_of
from carla_lite.scenery.vista import Walls

Place = tuple[float, float, float]
BGR = tuple[int, int, int]

PIECE_M, MOST_PIECES = 2.0, 64
"""Length of the pieces of a line, each of which can be hidden, and their largest number."""
LEAST_PX = 1.0
TEXT_ROWS = 480.0
"""Height of an image in which letters are 9 pixels high; they are larger in larger images, hardly smaller in smaller
ones.
"""


@dataclass(frozen=True)
class Drawing:
    """One shape; ``until_s`` is the simulated second at which it is last visible."""

    colour: BGR
    until_s: float
    lines: FloatArray = field(default_factory=lambda: np.zeros((0, 2, 3)))
    """(n, 2, 3) ends of the pieces; a point is a piece without length."""
    thickness_m: float = 0.0
    text: str = ""
    place: Place = (0.0, 0.0, 0.0)
    shaded: bool = False
    """Whether the text has a shadow."""


def line(begin: Place, end: Place) -> FloatArray:
    """Return the pieces of a line."""
    length = min(math.dist(begin, end), PIECE_M * MOST_PIECES)
    count = max(1, math.ceil(length / PIECE_M))
    knots = np.linspace(begin, end, count + 1)
    return np.stack([knots[:-1], knots[1:]], axis=1)


def arrow(begin: Place, end: Place, size: float) -> FloatArray:
    """Return the pieces of an arrow: its shaft, and four lines from the tip, ``size`` metres back and to the sides."""
    dx, dy, dz = (b - a for a, b in zip(begin, end, strict=True))
    axes = np.array(Pose(0.0, 0.0, 0.0, math.atan2(dz, math.hypot(dx, dy)), math.atan2(dy, dx)).axes())
    tips = [
        line(tuple(np.array(end) + np.array((-size, u * size, v * size)) @ axes), end) for u in (1, -1) for v in (1, -1)
    ]
    return np.concatenate([line(begin, end), *tips])


def box(centre: Place, extent: Place, turn: tuple[float, float, float]) -> FloatArray:
    """Return the twelve edges of a box with half sizes ``extent``, turned by pitch, yaw and roll (rad)."""
    axes = np.array(Pose(0.0, 0.0, 0.0, *turn).axes())
    corners = {
        signs: tuple(np.array(centre) + np.array(signs) * extent @ axes)
        for signs in itertools.product((-1, 1), repeat=3)
    }
    edges = [
        (one, other)
        for one, other in itertools.combinations(corners, 2)
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1
    ]
    return np.concatenate([line(corners[one], corners[other]) for one, other in edges])


def _at(origin: Place, away: Place, axes: FloatArray) -> Place:
    x, y, z = (np.array(origin) + np.array(away) @ axes).tolist()
    return x, y, z


def drawing_strokes(drawings: Sequence[Drawing], walls: Walls, view: View) -> list[Stroke]:
    """Return the pieces of all shapes in front of the eye, as ribbons turned towards it."""
    drawn = [drawing for drawing in drawings if len(drawing.lines)]
    if not drawn:
        return []
    counts = [len(drawing.lines) for drawing in drawn]
    lines = np.concatenate([drawing.lines for drawing in drawn])
    wide = np.repeat([drawing.thickness_m for drawing in drawn], counts)
    which = np.repeat(np.arange(len(drawn)), counts)
    seen = view.project(lines)
    before = seen[..., 2] > NEAR_M
    kept = before.any(axis=1)
    lines, wide, which, seen, before = lines[kept], wide[kept], which[kept], seen[kept], before[kept]
    if not len(lines):
        return []
    # An end behind the eye is moved along the line to just before it.
    step = seen[:, 1, 2] - seen[:, 0, 2]
    share = ((NEAR_M - seen[:, 0, 2]) / np.where(np.abs(step) < 1e-9, 1e-9, step))[:, None]
    cut = seen[:, 0] + share * (seen[:, 1] - seen[:, 0])
    seen = np.where(before[..., None], seen, cut[:, None])

    depth = np.maximum(seen[..., 2], NEAR_M)
    ends = seen[..., :2] / depth[..., None]
    half = np.maximum(0.5 * wide[:, None] * view.lens.focal / depth, 0.5 * LEAST_PX)[..., None]
    along = ends[:, 1] - ends[:, 0]
    length = np.hypot(along[:, 0], along[:, 1])
    dot = (lines[:, 0] == lines[:, 1]).all(axis=1) | (length < 1e-9)
    along = np.where(dot[:, None], (1.0, 0.0), along / np.maximum(length, 1e-9)[:, None])
    ends = ends + np.where(dot[:, None, None], np.stack([-along, along], axis=1) * half, 0.0)
    aside = np.stack([-along[:, 1], along[:, 0]], axis=1)[:, None] * half
    quads = pixels_of(np.concatenate([ends + aside, (ends - aside)[:, ::-1]], axis=1))

    middles = lines.mean(axis=1)
    distances = np.linalg.norm(middles - view.position, axis=1)
    keys = walls.keys(view.position, middles, distances).tolist()
    return [(key, quad, drawn[i].colour, NO_FACE) for key, quad, i in zip(keys, quads, which.tolist(), strict=True)]


def write_strings(image: Image, drawings: Sequence[Drawing], view: View) -> None:
    """Write the strings in front of the eye over everything, from their places to the right."""
    for drawing, place in _written(drawings, view):
        scale = 0.4 * max(0.75, len(image) / TEXT_ROWS)
        thickness = max(1, round(scale))
        if drawing.shaded:
            below = place[0] + thickness, place[1] + thickness
            cv2.putText(image, drawing.text, below, cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), thickness, cv2.LINE_AA)
        cv2.putText(image, drawing.text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, drawing.colour, thickness, cv2.LINE_AA)


def _written(drawings: Sequence[Drawing], view: View) -> Iterator[tuple[Drawing, tuple[int, int]]]:
    for drawing in drawings:
        if drawing.text:
            u, v, depth = view.project(np.array(drawing.place)).tolist()
            if depth > NEAR_M and max(abs(u), abs(v)) < 1e4 * depth:
                yield drawing, (round(u / depth), round(v / depth))
