"""The faces that rays meet first, found by Embree's trees.

Owns the only use of ``embreex``. Embree says which triangle a ray meets; where on it, is computed here in double
precision: processors on which Embree rounds differently give the same bytes wherever they choose the same face.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from carla_lite.rays.solids import Integers, Solid, dot
from carla_lite.roads.reference_line import FloatArray

Float32 = NDArray[np.float32]

_BEHIND_M = 1e-4
_MOST_BACKS = 64


class Faces:
    """The faces of some solids, one solid after the other."""

    def __init__(self, solids: Sequence[Solid]) -> None:
        firsts = np.cumsum([0, *(len(solid.normals) for solid in solids)])
        self.first_triangles = np.cumsum([0, *(len(solid.corners) for solid in solids)]).tolist()
        self.of_triangles = np.concatenate([solid.faces + start for solid, start in zip(solids, firsts, strict=False)])
        self.normals = np.concatenate([solid.normals for solid in solids])
        self.offsets = np.concatenate([solid.offsets for solid in solids])
        self.things = np.concatenate([solid.things for solid in solids])


class Caster:
    """A solid that rays are cast at."""

    def __init__(self, solid: Solid) -> None:
        # Not loaded before the first ray.
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        self.solid, self.faces = solid, Faces([solid])
        self._scene = EmbreeScene(robust=True)
        TriangleMesh(self._scene, np.ascontiguousarray(solid.corners, dtype=np.float32))

    def meet(self, starts: Float32, ways: Float32, far: Float32) -> Integers:
        """Return the triangle that each ray meets first, from whichever side; -1 for none."""
        met: Integers = self._scene.run(starts, ways, dists=far, query="INTERSECT")
        return met


@lru_cache(maxsize=4)
def _together(casters: tuple[Caster, ...]) -> Faces:
    """Return the faces of what moves: it is the same things for many steps."""
    return Faces([caster.solid for caster in casters])


def first(
    casters: Sequence[Caster], counts: Sequence[int], eyes: FloatArray, ways: FloatArray, far: FloatArray
) -> tuple[FloatArray, FloatArray, Integers]:
    """Return the faces whose outer sides n rays meet first.

    Args:
        casters: what they are cast at, the first ``counts[0]`` at the first one, and so on.
        counts: of rays at each.
        eyes: where they begin (n, 3), each in its solid's frame.
        ways: unit vectors (n, 3), likewise.
        far: how far each looks (n,), m.

    Returns:
        Distances (n,), infinite where there is none; normals (n, 3); the solids' things (n,), -1 where there is none.
    """
    group = casters[0].faces if len(casters) == 1 else _together(tuple(casters))
    distances, normals = np.full(len(ways), np.inf), np.zeros((len(ways), 3))
    things = np.full(len(ways), -1)
    left, begun = np.arange(len(ways)), np.zeros(len(ways))
    ends = np.cumsum(counts)
    # As in PhysX, rays pass the inner sides of faces: a sensor inside of its own car looks out of it.
    for _ in range(_MOST_BACKS):
        along = ways[left]
        starts = (eyes[left] + begun[left, None] * along).astype(np.float32)
        reach, single = (far[left] - begun[left]).astype(np.float32), along.astype(np.float32)
        met = np.full(len(left), -1)
        begin = 0
        bounds = np.searchsorted(left, ends).tolist()
        for caster, triangle, end in zip(casters, group.first_triangles, bounds, strict=False):
            if begin < end:
                found = caster.meet(starts[begin:end], single[begin:end], reach[begin:end])
                met[begin:end] = np.where(found < 0, -1, found + triangle)
            begin = end
        hit = np.flatnonzero(met >= 0)
        left, along, face = left[hit], along[hit], group.of_triangles[met[hit]]
        normal = group.normals[face]
        slope = dot(normal, along)
        distance = (group.offsets[face] - dot(normal, eyes[left])) / np.where(slope == 0.0, -1e-12, slope)
        front = slope < 0.0
        shown, face = left[front], face[front]
        distances[shown], normals[shown], things[shown] = distance[front], normal[front], group.things[face]
        left = left[~front]
        if not len(left):
            break
        begun[left] = np.maximum(distance[~front], begun[left]) + _BEHIND_M
    return distances, normals, things
