"""Detour's file format: one tile of polygons in the layout that ``dtNavMesh::addTile`` reads, wrapped as in CARLA.

Owns sizes, offsets and magic numbers (DetourNavMesh.h of recastnavigation, tile version 7 with 32-bit references; the
set's header is LibCarla's, in Navigation.cpp). Detour's axes are x, up, and CARLA's y. Knows nothing of roads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray

MOST_POLYGONS = 1 << 15  # a neighbour's number has 15 bits
MOST_CORNERS = (1 << 16) - 1

_SET_MAGIC, _SET_VERSION = int.from_bytes(b"MSET", "big"), 1
_TILE_MAGIC, _TILE_VERSION = int.from_bytes(b"DNAV", "big"), 7
_SET_HEADER = struct.Struct("<iii3fffii")
_TILE_IN_SET = struct.Struct("<Ii")
_HEADER = struct.Struct("<5iI9i3f3f3ff")
_NODE = np.dtype([("low", "<u2", 3), ("high", "<u2", 3), ("index", "<i4")])
_POLYGON = np.dtype(
    [
        ("link", "<u4"),
        ("corners", "<u2", 6),
        ("neighbours", "<u2", 6),
        ("flags", "<u2"),
        ("count", "u1"),
        ("area", "u1"),
    ]
)
_DETAIL = np.dtype([("corner", "<u4"), ("triangle", "<u4"), ("corners", "u1"), ("triangles", "u1"), ("", "<u2")])
_LINK_BYTES = 12
# Resolution (m) of the tree that finds polygons by place.
_QUANTUM_M = 0.25
_AGENT_HEIGHT_M, _AGENT_RADIUS_M, _CLIMB_M = 1.8, 0.3, 0.5
_VERTICAL_MARGIN_M = 2.0


def navigation_mesh(corners: FloatArray, rings: Sequence[Sequence[int]], areas: Sequence[int]) -> bytes:
    """Return the file of a mesh.

    Args:
        corners: (n, 3), m, in Detour's axes.
        rings: convex polygons of three to six corners, clockwise with x to the right and Detour's z upwards; two that
            share an edge are neighbours.
        areas: of each polygon; its flag is the bit with this number, as in LibCarla's SamplePolyFlags.

    Raises:
        ValueError: there are no polygons, or more than a tile holds.
    """
    if not 0 < len(rings) < MOST_POLYGONS or len(corners) > MOST_CORNERS:
        raise ValueError(f"{len(rings)} polygons with {len(corners)} corners, one tile holds {MOST_POLYGONS - 1}")
    low, high = corners.min(axis=0), corners.max(axis=0)
    around = np.array((1.0, _VERTICAL_MARGIN_M, 1.0))
    low, high = low - around, high + around
    tile = _tile(corners, rings, areas, low, high)
    width, _, depth = (high - low).tolist()
    header = _SET_HEADER.pack(_SET_MAGIC, _SET_VERSION, 1, *low.tolist(), width, depth, 1, MOST_POLYGONS)
    # Reference of the first tile in a set of one: salt 1 above the bits of a polygon.
    return header + _TILE_IN_SET.pack(MOST_POLYGONS, len(tile)) + tile


def _tile(
    corners: FloatArray, rings: Sequence[Sequence[int]], areas: Sequence[int], low: FloatArray, high: FloatArray
) -> bytes:
    polygons = _polygons(rings, areas)
    edges = int(polygons["count"].sum())
    triangles = [_fan(len(ring)) for ring in rings]
    detail = np.zeros(len(rings), _DETAIL)
    detail["triangles"] = [len(fan) for fan in triangles]
    detail["triangle"] = np.concatenate([[0], np.cumsum(detail["triangles"], dtype=np.int64)[:-1]])
    tree = _tree(corners, rings, low)
    header = _HEADER.pack(
        _TILE_MAGIC,
        _TILE_VERSION,
        *(0, 0, 0),  # coordinates of the tile in the set
        0,
        len(rings),
        len(corners),
        edges,
        len(rings),
        0,
        sum(map(len, triangles)),
        len(tree),
        0,
        len(rings),
        *(_AGENT_HEIGHT_M, _AGENT_RADIUS_M, _CLIMB_M),
        *low.tolist(),
        *high.tolist(),
        1.0 / _QUANTUM_M,
    )
    return b"".join(
        (
            header,
            corners.astype("<f4").tobytes(),
            polygons.tobytes(),
            bytes(_LINK_BYTES * edges),  # filled by the reader
            detail.tobytes(),
            np.array([row for fan in triangles for row in fan], np.uint8).tobytes(),
            tree.tobytes(),
        )
    )


def _polygons(rings: Sequence[Sequence[int]], areas: Sequence[int]) -> NDArray[np.void]:
    owner = {(a, b): i for i, ring in enumerate(rings) for a, b in pairwise([*ring, ring[0]])}
    polygons = np.zeros(len(rings), _POLYGON)
    for i, (ring, area) in enumerate(zip(rings, areas, strict=True)):
        # Neighbours are counted from 1; 0 is the mesh's border.
        neighbours = [owner.get((b, a), -1) + 1 for a, b in pairwise([*ring, ring[0]])]
        rest = [0] * (6 - len(ring))
        polygons[i] = (0, [*ring, *rest], [*neighbours, *rest], 1 << area, len(ring), area)
    return polygons


def _fan(count: int) -> list[tuple[int, int, int, int]]:
    """Return a polygon's triangles as indices of its corners; the last number flags outer edges (1, 4, 16)."""
    last = count - 1
    return [(0, j - 1, j, 4 | (1 if j == 2 else 0) | (16 if j == last else 0)) for j in range(2, count)]


def _tree(corners: FloatArray, rings: Sequence[Sequence[int]], low: FloatArray) -> NDArray[np.void]:
    """Return the bounding volumes: each inner node comes before its children, with the negative count to skip them."""
    starts = np.concatenate([[0], np.cumsum([len(ring) for ring in rings])[:-1]])
    places = corners[np.concatenate([np.asarray(ring) for ring in rings])]
    lowest = np.floor((np.minimum.reduceat(places, starts) - low) / _QUANTUM_M).astype(np.int64)
    highest = np.ceil((np.maximum.reduceat(places, starts) - low) / _QUANTUM_M).astype(np.int64)
    nodes = np.zeros(2 * len(rings) - 1, _NODE)
    count = 0

    def fill(members: NDArray[np.intp]) -> None:
        nonlocal count
        mine, count = count, count + 1
        bottom, top = lowest[members].min(axis=0), highest[members].max(axis=0)
        nodes["low"][mine], nodes["high"][mine] = bottom, top
        if len(members) == 1:
            nodes["index"][mine] = members[0]
            return
        ordered = members[np.argsort(lowest[members, int(np.argmax(top - bottom))], kind="stable")]
        half = len(ordered) // 2
        fill(ordered[:half])
        fill(ordered[half:])
        nodes["index"][mine] = -(count - mine)

    fill(np.arange(len(rings)))
    return nodes
