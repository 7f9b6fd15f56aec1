"""How far a ball moves along a line before it touches a triangle.

Owns the distances between places and triangles. Knows no things.
"""

from __future__ import annotations

import numpy as np

from carla_lite.rays.solids import dot
from carla_lite.roads.reference_line import FloatArray

_TOUCH_M = 1e-3
_MOST_STEPS = 512


def distances(place: FloatArray, triangles: FloatArray) -> FloatArray:
    """Return the distance from a place (3,) to each triangle (t, 3, 3), m."""
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    above = np.ones(len(triangles), dtype=bool)
    nearest = np.full(len(triangles), np.inf)
    for start, end in ((0, 1), (1, 2), (2, 0)):
        side, away = triangles[:, end] - triangles[:, start], place - triangles[:, start]
        share = np.clip(dot(away, side) / np.maximum(dot(side, side), 1e-18), 0.0, 1.0)
        beside = away - share[:, None] * side
        nearest = np.minimum(nearest, np.sqrt(dot(beside, beside)))
        above &= dot(np.cross(side, away), normals) >= 0.0
    sizes = np.maximum(np.sqrt(dot(normals, normals)), 1e-18)
    return np.where(above, np.abs(dot(place - triangles[:, 0], normals)) / sizes, nearest)


def between(triangles: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return which triangles (t, 3, 3) have bounding boxes that overlap the box between two corners: booleans (t,)."""
    inside: FloatArray = ((triangles.min(axis=1) <= high) & (triangles.max(axis=1) >= low)).all(axis=1)
    return inside


def touched(
    eye: FloatArray, way: FloatArray, radius_m: float, reach_m: float, triangles: FloatArray
) -> tuple[float, int] | None:
    """Return how far a ball moves before it touches a triangle, and which; None if it touches none.

    It advances by its distance to the nearest triangle, again and again; a millimetre counts as touching.
    """
    done = 0.0
    for _ in range(_MOST_STEPS if len(triangles) else 0):
        apart = distances(eye + done * way, triangles)
        which = int(apart.argmin())
        gap = float(apart[which]) - radius_m
        if gap < _TOUCH_M:
            return done, which
        done += gap
        if done > reach_m:
            break
    return None
