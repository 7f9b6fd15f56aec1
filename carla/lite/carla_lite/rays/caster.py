"""The first faces that rays hit, found by Embree's trees.

Owns the only use of ``embreex``. Embree finds the triangle; the point on it is computed here in double precision, so
that processors on which Embree rounds differently still give the same bytes if they find the same face.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from carla_lite.rays.solids import Integers, Solid, products
from carla_lite.roads.reference_line import FloatArray

Float32 = NDArray[np.float32]

_BEHIND_M = 1e-4
_MOST_BACKS = 64


class Faces:
    """The faces of several solids, one solid after the other, and last the face of nothing."""

    def __init__(self, solids: Sequence[Solid]) -> None:
        firsts = np.cumsum([0, *(len(solid.normals) for solid in solids)])
        self.first_triangles = np.cumsum([0, *(len(solid.corners) for solid in solids)]).tolist()
        self.of_triangles = np.concatenate([solid.faces + start for solid, start in zip(solids, firsts, strict=False)])
        self.normals = np.concatenate([*(solid.normals for solid in solids), np.zeros((1, 3))]).T.copy()
        self.offsets = np.concatenate([solid.offsets for solid in solids])
        self.things = np.concatenate([*(solid.things for solid in solids), [-1]])
        self.nothing = len(self.offsets)


class Caster:
    """A solid for casting rays at."""

    def __init__(self, solid: Solid) -> None:
        # Loaded with the first ray.
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        self.solid, self.faces = solid, Faces([solid])
        self.low, self.high = solid.corners.min(axis=(0, 1)), solid.corners.max(axis=(0, 1))
        self._scene = EmbreeScene(robust=True)
        TriangleMesh(self._scene, np.ascontiguousarray(solid.corners, dtype=np.float32))

    def meet(self, starts: Float32, ways: Float32, far: Float32) -> Integers:
        """Return the triangle that each ray (3, n) hits first, from either side; -1 for none."""
        met: Integers = self._scene.run(starts.T, ways.T, dists=far, query="INTERSECT")
        return met


@lru_cache(maxsize=4)
def _together(casters: tuple[Caster, ...]) -> Faces:
    """Return the faces of the moving things, which stay the same for many steps."""
    return Faces([caster.solid for caster in casters])


def first(
    casters: Sequence[Caster], counts: Sequence[int], eyes: FloatArray, ways: FloatArray, far: FloatArray
) -> tuple[FloatArray, FloatArray, Integers]:
    """Return the first faces that n rays hit from outside.

    Args:
        casters: solids to hit; the first ``counts[0]`` rays are cast at the first one, and so on.
        counts: number of rays for each caster.
        eyes: start of each ray (3, n), in its solid's frame, or the one place (3, 1) where all of them do.
        ways: unit vectors (3, n), in the same frames.
        far: length of each ray (n,), m.

    Returns:
        Distances (n,), infinite without a hit; normals (3, n); the solids' things (n,), -1 without a hit.
    """
    faces = casters[0].faces if len(casters) == 1 else _together(tuple(casters))
    count = ways.shape[1]
    distances, met = np.full(count, np.inf), np.full(count, faces.nothing)
    left, ends, starts, begun = np.arange(count), np.cumsum(counts), eyes, np.zeros(count)
    # As in PhysX, rays pass the inner sides of faces: a sensor inside its car looks out of it.
    for _ in range(_MOST_BACKS):
        found = _triangles(casters, faces, np.searchsorted(left, ends).tolist(), starts, ways, far - begun)
        # Columns are taken rather than indexed, which takes numpy four times as long.
        hit = np.flatnonzero(found >= 0)
        face = faces.of_triangles.take(found.take(hit))
        normal, way, eye = faces.normals.take(face, 1), ways.take(hit, 1), _taken(eyes, hit)
        slope = products(normal, way)
        distance = (faces.offsets.take(face) - products(normal, eye)) / np.where(slope == 0.0, -1e-12, slope)
        front, back = np.flatnonzero(slope < 0.0), np.flatnonzero(slope >= 0.0)
        shown = left.take(hit.take(front))
        distances[shown], met[shown] = distance.take(front), face.take(front)
        if not len(back):
            break
        behind = hit.take(back)
        left, far, eyes, ways = left.take(behind), far.take(behind), _taken(eyes, behind), ways.take(behind, 1)
        begun = np.maximum(distance.take(back), begun.take(behind)) + _BEHIND_M
        starts = eyes + begun * ways
    return distances, faces.normals.take(met, 1), faces.things.take(met)


def _triangles(
    casters: Sequence[Caster], faces: Faces, ends: Sequence[int], starts: FloatArray, ways: FloatArray, far: FloatArray
) -> Integers:
    """Return the triangles (n,) that rays meet first, -1 where there is none."""
    single, reach = ways.astype(np.float32), far.astype(np.float32)
    places = np.broadcast_to(starts, ways.shape).astype(np.float32)
    met, begin = np.full(len(far), -1), 0
    for caster, triangle, end in zip(casters, faces.first_triangles, ends, strict=False):
        if begin < end:
            found = caster.meet(places[:, begin:end], single[:, begin:end], reach[begin:end])
            np.add(found, triangle, out=met[begin:end], where=found >= 0)
        begin = end
    return met


def _taken(columns: FloatArray, which: Integers) -> FloatArray:
    """Return some of the columns, or the only one there is."""
    return columns if columns.shape[1] == 1 else columns.take(which, 1)
