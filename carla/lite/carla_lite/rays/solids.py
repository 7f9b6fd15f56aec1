"""Things that rays can hit, as triangles: made from the meshes for cameras, and from the raster of the ground.

Owns the conversion from a mesh to flat faces with an outer side; a shape's faces are in its own frame. Never touches a
ray.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carla_lite.protocol.wire import Vector
from carla_lite.roads.ground import HEADROOM_M, level_of, rasters
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.meshes import FACES, StaticMesh
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.vehicle_meshes import Part, VehicleMesh

Integers = NDArray[np.intp]

SIDES = 8
"""Sides of a post, which cameras draw as a strip of its width."""
BEYOND_M = 20_000.0
"""How far the ground extends beyond a map."""
MOST_CELLS = 100_000
"""Most cells of hilly ground; a larger map has larger cells."""


class Faces(NamedTuple):
    """k convex polygons of n corners each."""

    outlines: FloatArray  # (k, n, 3)
    normals: FloatArray  # (k, 3) unit vectors; rays only hit the side that they point from
    things: Integers  # (k,) the thing that each belongs to


@dataclass(frozen=True, eq=False)
class Solid:
    """f flat faces, and their t triangles."""

    corners: FloatArray  # (t, 3, 3) m
    faces: Integers  # (t,) the face of each triangle
    normals: FloatArray  # (f, 3)
    offsets: FloatArray  # (f,) product of the normal and any place on the face
    things: Integers  # (f,)

    @classmethod
    def of(cls, groups: Sequence[Faces]) -> Solid:
        """Return the triangles of all faces: fans from each face's first corner."""
        corners, owners, first = [], [], 0
        for outlines, _, things in groups:
            count, around = outlines.shape[:2]
            fan = np.array([(0, i, i + 1) for i in range(1, around - 1)])
            corners.append(outlines[:, fan].reshape(-1, 3, 3))
            owners.append(np.repeat(np.arange(first, first + count), around - 2))
            first += len(things)
        normals = np.concatenate([group.normals for group in groups])
        starts = np.concatenate([group.outlines[:, 0] for group in groups])
        things = np.concatenate([group.things for group in groups])
        return cls(np.concatenate(corners), np.concatenate(owners), normals, dot(normals, starts), things)


def dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the products of vectors (..., 3), summed in the same order on all processors."""
    product: FloatArray = a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]
    return product


def products(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the products of vectors (3, n), with one row per coordinate, along which numpy is fast."""
    summed: FloatArray = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return summed


def turned(ways: FloatArray, axes: Sequence[Vector]) -> FloatArray:
    """Return vectors (3, n) of a frame in the frame in which its three axes are given."""
    x, y, z = ways
    return np.stack([x * a + y * b + z * c for a, b, c in zip(*axes, strict=True)])


def figure(mesh: VehicleMesh) -> list[Faces]:
    """Return the panels of a mesh, in its frame; their things are the ``Part`` that each belongs to.

    The shadow that is drawn below it is left out.
    """
    points, normals = mesh.rows[: mesh.count, :3], mesh.rows[mesh.count :, :3]
    starts, ends, parts = mesh.traits[:, 4:].astype(np.intp).T
    sizes = np.where(parts >= Part.SHADOW, 0, ends - starts)  # the others lie on the ground, or on another panel
    groups = [(size, sizes == size) for size in sorted(set(sizes.tolist()) - {0})]
    return [Faces(points[starts[of, None] + np.arange(size)], normals[of], parts[of]) for size, of in groups]


def placed(faces: Faces, pose: Pose, thing: int) -> Faces:
    """Return faces of a shape's frame in the world's frame, all as one thing."""
    axes = np.array(pose.axes())
    place = np.array((pose.x, pose.y, pose.z))
    return Faces(place + faces.outlines @ axes, faces.normals @ axes, np.full(len(faces.things), thing))


def still(mesh: StaticMesh) -> list[Faces]:
    """Return buildings, posts and crowns; their things are the numbers of their boxes."""
    houses, posts, crowns = mesh.numbers
    walls = mesh.corners[:, FACES].reshape(-1, 4, 3)
    return [
        Faces(walls, mesh.normals.reshape(-1, 3), np.repeat(houses, len(FACES))),
        *_posts(mesh.post_ends, mesh.post_widths, posts),
        _balls(mesh.crown_centres, mesh.crown_radii, crowns),
    ]


def _posts(ends: FloatArray, widths: FloatArray, things: Integers) -> list[Faces]:
    """Return prisms of about the same width from all sides, with their lids."""
    along = ends[:, 1] - ends[:, 0]
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    upright = np.abs(along[:, 2:]) > 0.5
    one = np.cross(along, np.where(upright, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))
    one /= np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-9)
    other = np.cross(along, one)

    def around(turns: FloatArray) -> FloatArray:
        cos, sin = np.cos(turns)[:, None], np.sin(turns)[:, None]
        way: FloatArray = cos * one[:, None] + sin * other[:, None]
        return way

    turns = np.linspace(0.0, math.tau, SIDES, endpoint=False)
    # Between the inscribed and the circumscribed circle.
    radius = 0.5 * widths * 0.5 * (1.0 + 1.0 / math.cos(math.pi / SIDES))
    rings = ends[:, :, None] + (radius[:, None, None] * around(turns))[:, None]
    low, high = rings[:, 0], rings[:, 1]
    after = np.roll(np.arange(SIDES), -1)
    sides = np.stack([low, low[:, after], high[:, after], high], axis=2).reshape(-1, 4, 3)
    normals = around(turns + math.pi / SIDES).reshape(-1, 3)
    return [Faces(sides, normals, np.repeat(things, SIDES)), Faces(low, -along, things), Faces(high, along, things)]


def _balls(centres: FloatArray, radii: FloatArray, things: Integers) -> Faces:
    corners, normals = _ball()
    count = len(centres)
    outlines = centres[:, None, None] + radii[:, None, None, None] * corners
    return Faces(outlines.reshape(-1, 3, 3), np.tile(normals, (count, 1)), np.repeat(things, len(corners)))


def _ball() -> tuple[FloatArray, FloatArray]:
    """Return 80 triangles (80, 3, 3) of a ball of radius 1, and their normals: an icosahedron with each face cut in
    four.
    """
    golden = 0.5 * (1.0 + math.sqrt(5.0))
    points = np.array([(0, a, b * golden) for a in (-1, 1) for b in (-1, 1)], dtype=np.float64)
    points = np.concatenate([np.roll(points, shift, axis=1) for shift in range(3)])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    near = np.abs(apart - 2.0) < 1e-9
    triples = [
        (i, j, k) for i in range(12) for j in range(i) for k in range(j) if near[i, j] and near[j, k] and near[i, k]
    ]
    a, b, c = points[np.array(triples)].transpose(1, 0, 2)
    ab, bc, ca = 0.5 * (a + b), 0.5 * (b + c), 0.5 * (c + a)
    corners = np.concatenate(
        [np.stack(parts, axis=1) for parts in ((a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca))]
    )
    corners /= np.linalg.norm(corners, axis=2, keepdims=True)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals *= np.sign(dot(normals, corners[:, 0]))[:, None] / np.linalg.norm(normals, axis=1, keepdims=True)
    return corners, normals


def ground(points: FloatArray, thing: int) -> Faces:
    """Return the ground around lane samples (n, 3): one triangle if it is level, else two per cell of its rasters."""
    level = level_of(points)
    if level is not None:
        # One triangle without an edge near the map: rays can slip between two triangles.
        x, y = points[:, :2].min(axis=0).tolist()
        around = [(x - BEYOND_M, y - BEYOND_M), (x + 4.0 * BEYOND_M, y - BEYOND_M), (x - BEYOND_M, y + 4.0 * BEYOND_M)]
        outline = np.array([[(*corner, level) for corner in around]])
        return Faces(outline, np.array([[0.0, 0.0, 1.0]]), np.array([thing]))
    corner, cell_m, upper, lower = rasters(points)
    every = max(1, math.ceil(math.sqrt(lower.size / MOST_CELLS)))
    rows, columns = (np.unique([*range(0, size, every), size - 1]) for size in lower.shape)
    xs, ys = corner[0] + cell_m * columns, corner[1] + cell_m * rows
    xs, ys = (np.concatenate([[at[0] - BEYOND_M], at, [at[-1] + BEYOND_M]]) for at in (xs, ys))

    def cells(heights: FloatArray) -> FloatArray:
        """Return the corners (4, n, 3) of all cells."""
        grid = np.dstack([*np.meshgrid(xs, ys), np.pad(heights[np.ix_(rows, columns)], 1, mode="edge")])
        parts = grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]
        return np.stack([part.reshape(-1, 3) for part in parts])

    corners = cells(lower)
    if upper is not lower:
        bridges = cells(upper)
        # Without the cells between a bridge and its surroundings, which would be walls across the road under it.
        corners = np.concatenate([corners, bridges[:, ((bridges - corners)[..., 2] > HEADROOM_M).all(axis=0)]], axis=1)
    a, b, c, d = corners
    outlines = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    normals = np.cross(outlines[:, 1] - outlines[:, 0], outlines[:, 2] - outlines[:, 0])
    normals *= np.sign(normals[:, 2:]) / np.linalg.norm(normals, axis=1, keepdims=True)
    return Faces(outlines, normals, np.full(len(outlines), thing))
