"""Convex polygons that cover the areas of a raster without gaps and share their edges.

Owns the triangulation between the areas' outlines and the joining of triangles to polygons of at most six corners.
Works in pixels; knows nothing of metres or roads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.navigation.outlines import FINE, Corner, outlines

MOST_CORNERS = 6
# Rounds in which an outline that triangles cross is halved; afterwards the error is less than a step.
ROUNDS = 6

Labels = NDArray[np.uint8]


@dataclass(frozen=True)
class Polygons:
    """Corners in pixels, polygons as corner indices in the same orientation, and each polygon's label."""

    corners: NDArray[np.float64]  # (n, 2) x along the columns, y along the rows
    rings: list[list[int]]  # negative area by the shoelace formula in (x, y)
    labels: list[int]


def polygons(labels: Labels, step_px: float) -> Polygons:
    """Return polygons that cover every pixel with a label other than 0; outlines have a corner at least every
    ``step_px``.
    """
    lines = outlines(labels, step_px)
    places, triangles = _triangulate(lines, labels.shape)
    middle = places[triangles].mean(axis=1) / FINE
    kinds = labels[
        np.clip(middle[:, 1].astype(int), 0, labels.shape[0] - 1),
        np.clip(middle[:, 0].astype(int), 0, labels.shape[1] - 1),
    ]
    inside = (middle >= 0.0).all(axis=1) & (middle < labels.shape[::-1]).all(axis=1) & (kinds > 0)
    rings, ring_labels = _joined(triangles[inside].tolist(), kinds[inside].tolist(), places)
    used = sorted({corner for ring in rings for corner in ring})
    number = {corner: i for i, corner in enumerate(used)}
    return Polygons(places[used] / FINE, [[number[corner] for corner in ring] for ring in rings], ring_labels)


def _triangulate(lines: list[list[Corner]], shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return corners (n, 2) and triangles (m, 3) of a Delaunay triangulation that contains the lines."""
    rows, columns = shape[0] * FINE, shape[1] * FINE
    # An offset on both sides: the subdivision's outer triangle must not be near.
    net = cv2.Subdiv2D((-FINE, -FINE, columns + 2 * FINE, rows + 2 * FINE))
    known = dict.fromkeys(corner for line in lines for corner in line)
    net.insert(list(known))
    segments = [pair for line in lines for pair in pairwise(line)]
    for _ in range(ROUNDS):
        edges = np.array(net.getEdgeList(), np.int64)
        present = set(map(tuple, edges.tolist()))
        missing = [(a, b) for a, b in segments if (*a, *b) not in present and (*b, *a) not in present]
        halves = [(a, ((a[0] + b[0]) // 2, (a[1] + b[1]) // 2), b) for a, b in missing]
        halves = [(a, middle, b) for a, middle, b in halves if middle not in (a, b)]
        if not halves:
            break
        fresh = dict.fromkeys(middle for _, middle, _ in halves if middle not in known)
        if fresh:
            net.insert(list(fresh))
        known.update(fresh)
        segments = [pair for a, middle, b in halves for pair in ((a, middle), (middle, b))]
    number = {corner: i for i, corner in enumerate(known)}
    found = np.array(net.getTriangleList(), np.int64).reshape(-1, 3, 2).tolist()
    triangles = [[number.get((x, y), -1) for x, y in triangle] for triangle in found]
    kept = np.array([triangle for triangle in triangles if min(triangle) >= 0], np.intp).reshape(-1, 3)
    places = np.array(list(known), np.float64).reshape(-1, 2)  # of a tile without lines, too
    a, b, c = places[kept].transpose(1, 0, 2)
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    kept[area > 0] = kept[area > 0][:, ::-1]
    return places, kept[area != 0]


def _joined(
    rings: list[list[int]], labels: list[int], places: NDArray[np.float64]
) -> tuple[list[list[int]], list[int]]:
    """Join polygons of one label at their longest common edges while they stay convex and small enough."""
    at = [(int(x), int(y)) for x, y in places.tolist()]
    owner = {(a, b): i for i, ring in enumerate(rings) for a, b in pairwise([*ring, ring[0]])}
    shared = [(a, b) for a, b in owner if a < b and (b, a) in owner]
    shared.sort(key=lambda edge: (-_length2(at[edge[0]], at[edge[1]]), edge))
    kept: list[list[int] | None] = list(rings)
    for a, b in shared:
        first, second = owner[a, b], owner[b, a]
        one, other = kept[first], kept[second]
        if first == second or labels[first] != labels[second] or one is None or other is None:
            continue
        if len(one) + len(other) - 2 > MOST_CORNERS:
            continue
        i, j = one.index(b), other.index(a)
        ring = [*one[i:], *one[:i], *(other[j:] + other[:j])[1:-1]]
        if len(set(ring)) != len(ring) or not _convex(ring, at):
            continue
        kept[first], kept[second] = ring, None
        for edge in pairwise([*ring, ring[0]]):
            owner[edge] = first
    alive = [i for i, ring in enumerate(kept) if ring is not None]
    return [kept[i] or [] for i in alive], [labels[i] for i in alive]


def _length2(a: Corner, b: Corner) -> int:
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2


def _convex(ring: list[int], at: list[Corner]) -> bool:
    """Return whether no corner of a ring turns inwards; straight corners are allowed."""
    points = [at[i] for i in ring]
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:] + points[:1], points[2:] + points[:2], strict=True):
        if (bx - ax) * (cy - by) - (by - ay) * (cx - bx) > 0:
            return False
    return True
