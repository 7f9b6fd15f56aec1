"""Detour's file format: tiles of polygons in the layout that ``dtNavMesh::addTile`` reads, wrapped as in CARLA.

Owns sizes, offsets and magic numbers (DetourNavMesh.h of recastnavigation, tile version 7 with 32-bit references; the
set's header is LibCarla's, in Navigation.cpp). Detour's axes are x, up, and CARLA's y. Knows nothing of roads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray

MOST_POLYGONS = 1 << 15  # a neighbour's number has 15 bits
MOST_CORNERS = (1 << 16) - 1
MOST_TILES = 1 << 7  # a reference has 32 bits, ten of them for the salt

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
# An edge on a tile's side: towards larger x, larger y, smaller x and smaller y are 0, 2, 4 and 6.
_EXTERNAL = 1 << 15
_SIDE_AXES = [0, 2, 0, 2]
_ON_SIDE_M = 1e-6
# Resolution (m) of the tree that finds polygons by place.
_QUANTUM_M = 0.25
_AGENT_HEIGHT_M, _AGENT_RADIUS_M, _CLIMB_M = 1.8, 0.3, 0.5
_VERTICAL_MARGIN_M = 2.0


@dataclass(frozen=True)
class Grid:
    """Place and size (m) of the tiles: the first one begins at the smallest x and y."""

    x_min: float
    y_min: float
    width: float
    depth: float


@dataclass(frozen=True)
class Tile:
    """A tile's place in the grid, and its polygons.

    Attributes:
        corners: (n, 3), m, in Detour's axes.
        rings: convex polygons of three to six corners, clockwise with x to the right and Detour's z upwards; two that
            share an edge are neighbours. The client joins edges that lie on the side between two tiles.
        areas: of each polygon; its flag is the bit with this number, as in LibCarla's SamplePolyFlags.
    """

    column: int
    row: int
    corners: FloatArray
    rings: Sequence[Sequence[int]]
    areas: Sequence[int]


def navigation_mesh(tiles: Sequence[Tile], grid: Grid) -> bytes:
    """Return the file of a mesh.

    Raises:
        ValueError: there are no polygons, or more than a tile or a reference holds.
    """
    if not tiles:
        raise ValueError("there is nowhere to walk")
    for tile in tiles:
        if len(tile.rings) >= MOST_POLYGONS or len(tile.corners) > MOST_CORNERS:
            counts = f"{len(tile.rings)} polygons with {len(tile.corners)} corners"
            raise ValueError(f"{counts}, one tile holds {MOST_POLYGONS - 1} and {MOST_CORNERS}")
    if len(tiles) > MOST_TILES:
        raise ValueError(f"{len(tiles)} tiles, a reference holds {MOST_TILES}")
    lowest = min(float(tile.corners[:, 1].min()) for tile in tiles) - _VERTICAL_MARGIN_M
    start = (grid.x_min, lowest, grid.y_min)
    parts = [
        _SET_HEADER.pack(
            _SET_MAGIC, _SET_VERSION, len(tiles), *start, grid.width, grid.depth, len(tiles), MOST_POLYGONS
        )
    ]
    tile_bits = (len(tiles) - 1).bit_length()
    for number, tile in enumerate(tiles):
        content = _tile(tile, grid)
        # Salt 1 above the bits of tile and polygon.
        reference = ((1 << tile_bits) + number) * MOST_POLYGONS
        parts += [_TILE_IN_SET.pack(reference, len(content)), content]
    return b"".join(parts)


def _tile(tile: Tile, grid: Grid) -> bytes:
    corners, rings = tile.corners, tile.rings
    x, y = grid.x_min + tile.column * grid.width, grid.y_min + tile.row * grid.depth
    heights = corners[:, 1]
    low = np.array((x, heights.min() - _VERTICAL_MARGIN_M, y))
    high = np.array((x + grid.width, heights.max() + _VERTICAL_MARGIN_M, y + grid.depth))
    polygons, portals = _polygons(tile, low, high)
    links = int(polygons["count"].sum()) + 2 * portals
    triangles = [_fan(len(ring)) for ring in rings]
    detail = np.zeros(len(rings), _DETAIL)
    detail["triangles"] = [len(fan) for fan in triangles]
    detail["triangle"] = np.concatenate([[0], np.cumsum(detail["triangles"], dtype=np.int64)[:-1]])
    tree = _tree(corners, rings, low)
    header = _HEADER.pack(
        _TILE_MAGIC,
        _TILE_VERSION,
        *(tile.column, tile.row, 0),
        0,
        len(rings),
        len(corners),
        links,
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
            bytes(_LINK_BYTES * links),  # filled by the reader
            detail.tobytes(),
            np.array([row for fan in triangles for row in fan], np.uint8).tobytes(),
            tree.tobytes(),
        )
    )


def _polygons(tile: Tile, low: FloatArray, high: FloatArray) -> tuple[NDArray[np.void], int]:
    """Return the records of a tile's polygons, and the number of edges on its sides."""
    owner = {(a, b): i for i, ring in enumerate(tile.rings) for a, b in pairwise([*ring, ring[0]])}
    # By the corner, the sides that it lies on: a bit each.
    apart = np.abs(tile.corners[:, _SIDE_AXES] - [high[0], high[2], low[0], low[2]])
    on_sides = ((apart < _ON_SIDE_M) @ [1, 2, 4, 8]).tolist()

    def neighbour(a: int, b: int) -> int:
        """Return the number, counted from 1, of the polygon beyond an edge; 0 for the mesh's border."""
        side = on_sides[a] & on_sides[b]
        beyond = _EXTERNAL | 2 * (side.bit_length() - 1) if side else 0
        return owner[b, a] + 1 if (b, a) in owner else beyond

    polygons = np.zeros(len(tile.rings), _POLYGON)
    for i, (ring, area) in enumerate(zip(tile.rings, tile.areas, strict=True)):
        rest = [0] * (6 - len(ring))
        neighbours = [neighbour(a, b) for a, b in pairwise([*ring, ring[0]])]
        polygons[i] = (0, [*ring, *rest], [*neighbours, *rest], 1 << area, len(ring), area)
    return polygons, int((polygons["neighbours"] >= _EXTERNAL).sum())


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
