"""Static boxes as arrays that a camera projects at once: buildings with windows, posts, crowns of trees.

Owns the geometry. Never touches light, a camera's pose or pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.statics import TAG_BUILDING, StaticBox

WINDOW_PITCH_M, FLOOR_M = 2.6, 3.1
WINDOW_HALF_WIDTH_M, WINDOW_HALF_HEIGHT_M = 0.65, 0.75
ROOF = (104, 112, 128)

# Corners of a box by the signs of their coordinates: the bottom clockwise from above, then the top.
CORNERS = np.array([(u, v, w) for w in (-1, 1) for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))], dtype=np.float64)
# Ahead, behind, right, left, top: corner indices around each face.
FACES = np.array([(0, 3, 7, 4), (2, 1, 5, 6), (1, 0, 4, 5), (3, 2, 6, 7), (4, 7, 6, 5)])
NORMALS = np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1)], dtype=np.float64)


@dataclass(frozen=True)
class StaticMesh:
    """All static things of a map. Buildings are n boxes, posts and arms are p lines, crowns are k balls."""

    boxes: tuple[StaticBox, ...]
    corners: FloatArray  # (n, 8, 3)
    centres: FloatArray  # (n, 3)
    halves: FloatArray  # (n, 3)
    turns: FloatArray  # (n, 2) cosine and sine of the yaw
    reaches: FloatArray  # (n,) radius of the footprint
    normals: FloatArray  # (n, 5, 3) of the faces
    colours: FloatArray  # (n, 5, 3) BGR of the faces
    post_ends: FloatArray  # (p, 2, 3) bottom and top, or both ends of an arm
    post_widths: FloatArray  # (p,)
    post_colours: FloatArray  # (p, 3)
    lamps: FloatArray  # (l, 3) places of the posts' lamps
    crown_centres: FloatArray  # (k, 3)
    crown_radii: FloatArray  # (k,)
    crown_colours: FloatArray  # (k, 3)
    numbers: tuple[NDArray[np.intp], ...]  # for buildings, posts and crowns: indices among all boxes
    tags: NDArray[np.intp]  # of all boxes
    _windows: dict[int, tuple[FloatArray, ...]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, boxes: Sequence[StaticBox]) -> StaticMesh:
        """Return the arrays for boxes: buildings by their tag; crowns are boxes that a car can't hit; the rest are
        posts.
        """
        kinds = [0 if box.tag == TAG_BUILDING else 1 if box.solid else 2 for box in boxes]
        buildings = tuple(box for box in boxes if box.tag == TAG_BUILDING)
        crowns = [box for box in boxes if box.tag != TAG_BUILDING and not box.solid]
        posts = [box for box in boxes if box.tag != TAG_BUILDING and box.solid]
        rotations = np.array([_rotation(box) for box in buildings]).reshape(-1, 3, 3)
        centres, halves = _rows([b.centre for b in buildings]), _rows([b.extent for b in buildings])
        fronts = np.repeat(_rows([b.colour for b in buildings])[:, None], 5, axis=1)
        fronts[:, 4] = ROOF
        post_centres, post_halves = _rows([b.centre for b in posts]), _rows([b.extent for b in posts])
        along = _rows([_along(b) for b in posts])
        return cls(
            buildings,
            centres[:, None] + (CORNERS * halves[:, None]) @ rotations.transpose(0, 2, 1),
            centres,
            halves,
            rotations[:, :2, 0],
            np.hypot(halves[:, 0], halves[:, 1]),
            NORMALS @ rotations.transpose(0, 2, 1),
            fronts,
            np.stack([post_centres - along, post_centres + along], axis=1),
            2.0 * post_halves[:, 1],
            _rows([b.colour for b in posts]),
            _rows([(b.x, b.y, b.z + b.half_height_m) for b in posts if b.lamp]),
            _rows([b.centre for b in crowns]),
            _rows([b.extent for b in crowns])[:, 0],
            _rows([b.colour for b in crowns]),
            tuple(np.flatnonzero(np.array(kinds, np.intp) == kind) for kind in range(3)),
            np.array([box.tag for box in boxes], np.intp),
        )

    def windows(self, building: int) -> tuple[FloatArray, ...]:
        """Return the windows of a building's four walls: quads (m, 4, 3) in the world's frame, in FACES' order."""
        if building not in self._windows:
            self._windows[building] = _windows(self.boxes[building])
        return self._windows[building]


def _along(post: StaticBox) -> tuple[float, float, float]:
    """Return the vector from the centre to an end: up for a post, sideways for an arm."""
    half = post.half_length_m
    return (half * post.cos, half * post.sin, 0.0) if half > post.half_height_m else (0.0, 0.0, post.half_height_m)


def _rows(values: Sequence[tuple[float, float, float]]) -> FloatArray:
    return np.array(values, dtype=np.float64).reshape(-1, 3)


def _rotation(box: StaticBox) -> FloatArray:
    return np.array(((box.cos, -box.sin, 0.0), (box.sin, box.cos, 0.0), (0.0, 0.0, 1.0)))


def _windows(box: StaticBox) -> tuple[FloatArray, ...]:
    walls = []
    floors = int(2.0 * box.half_height_m / FLOOR_M)
    for face in range(4):
        normal = NORMALS[face]
        along_half = box.half_width_m if face < 2 else box.half_length_m
        count = max(1, int((2.0 * along_half - 1.0) / WINDOW_PITCH_M))
        places = (np.arange(count) - 0.5 * (count - 1)) * WINDOW_PITCH_M
        heights = -box.half_height_m + FLOOR_M * (np.arange(floors) + 0.55)
        along, up = (grid.ravel()[:, None] for grid in np.meshgrid(places, heights))
        du = np.array((-1, 1, 1, -1)) * WINDOW_HALF_WIDTH_M
        dv = np.array((-1, -1, 1, 1)) * WINDOW_HALF_HEIGHT_M
        local = np.zeros((len(along), 4, 3))
        local += normal * (box.half_length_m if face < 2 else box.half_width_m)
        local[..., 1 if face < 2 else 0] += along + du
        local[..., 2] += up + dv
        walls.append(np.array(box.centre) + local @ _rotation(box).T)
    return tuple(walls)
