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
    """The faces of several solids, one solid after the other."""

    def __init__(self, solids: Sequence[Solid]) -> None:
        firsts = np.cumsum([0, *(len(solid.normals) for solid in solids)])
        self.first_triangles = np.cumsum([0, *(len(solid.corners) for solid in solids)]).tolist()
        self.of_triangles = np.concatenate([solid.faces + start for solid, start in zip(solids, firsts, strict=False)])
        self.normals = np.concatenate([solid.normals for solid in solids]).T.copy()
        self.offsets = np.concatenate([solid.offsets for solid in solids])
        self.things = np.concatenate([solid.things for solid in solids])


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
        eyes: start of each ray (3, n), in its solid's frame.
        ways: unit vectors (3, n), in the same frames.
        far: length of each ray (n,), m.

    Returns:
        Distances (n,), infinite without a hit; normals (3, n); the solids' things (n,), -1 without a hit.
    """
    faces = casters[0].faces if len(casters) == 1 else _together(tuple(casters))
    count = ways.shape[1]
    distances, normals, things = np.full(count, np.inf), np.zeros((3, count)), np.full(count, -1)
    left, begun, ends = np.arange(count), np.zeros(count), np.cumsum(counts)
    # As in PhysX, rays pass the inner sides of faces: a sensor inside its car looks out of it.
    for _ in range(_MOST_BACKS):
        starts, single = (eyes + begun * ways).astype(np.float32), ways.astype(np.float32)
        reach, met, begin = (far - begun).astype(np.float32), np.full(len(left), -1), 0
        for caster, triangle, end in zip(
            casters, faces.first_triangles, np.searchsorted(left, ends).tolist(), strict=False
        ):
            if begin < end:
                found = caster.meet(starts[:, begin:end], single[:, begin:end], reach[begin:end])
                met[begin:end] = np.where(found < 0, -1, found + triangle)
            begin = end
        hit = np.flatnonzero(met >= 0)
        face = faces.of_triangles[met[hit]]
        left, begun, far, eyes, ways = left[hit], begun[hit], far[hit], eyes[:, hit], ways[:, hit]
        normal = faces.normals[:, face]
        slope = products(normal, ways)
        distance = (faces.offsets[face] - products(normal, eyes)) / np.where(slope == 0.0, -1e-12, slope)
        front, back = np.flatnonzero(slope < 0.0), np.flatnonzero(slope >= 0.0)
        shown = left[front]
        distances[shown], normals[:, shown] = distance[front], normal[:, front]
        things[shown] = faces.things[face[front]]
        if not len(back):
            break
        left, far, eyes, ways = left[back], far[back], eyes[:, back], ways[:, back]
        begun = np.maximum(distance[back], begun[back]) + _BEHIND_M
    return distances, normals, things
