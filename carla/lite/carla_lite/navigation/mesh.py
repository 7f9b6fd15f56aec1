"""The navigation mesh of a map as the file that a client fetches: its name, and its bytes, made once.

Owns the conversion from a road network to the file. The client caches files by name, across servers and restarts, so
the name changes with the bytes.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import numpy as np

from carla_lite import heap, roads
from carla_lite.navigation.areas import area_map
from carla_lite.navigation.detour import Grid, Tile, navigation_mesh
from carla_lite.navigation.polygons import polygons
from carla_lite.roads.network import RoadNetwork

STEP_M = 4.0
MOST_TILE_PX = 2048
"""Of a tile's side: a generated town of 400 m is one tile, and one of 800 m has more polygons than a tile holds."""


def file_name(network: RoadNetwork, verges: bool = True) -> str:
    """Return the name by which a client requests the map's mesh."""
    content = hashlib.sha256(network.xodr.encode() + _sources() + (b"" if verges else b"strict"))
    return f"Carla/Maps/Nav/{network.name}-{content.hexdigest()[:16]}.bin"


@cache
def _sources() -> bytes:
    """Return what the bytes depend on besides the map: this package, and the reading of roads."""
    folders = (Path(__file__).parent, Path(roads.__file__).parent)
    return b"".join(path.read_bytes() for folder in folders for path in sorted(folder.glob("*.py")))


@lru_cache(maxsize=1)
def build(network: RoadNetwork, verges: bool = True) -> bytes:
    """Return the file: sidewalks, crosswalks, roads and medians at the ground's height.

    On a map without sidewalks, verges beside the roads replace them, unless ``verges`` is false.

    Raises:
        ValueError: there is nowhere to walk, or there are too many polygons.
    """
    areas = area_map(network.lanes, [outline[:, :2] for outline in network.crossings.crosswalks], verges)
    # Tiles of one size: the client draws a random place from each tile as often as from any other.
    rows, columns = (-(-side // MOST_TILE_PX) for side in areas.labels.shape)
    deep, wide = -(-areas.labels.shape[0] // rows), -(-areas.labels.shape[1] // columns)
    tiles = []
    for row, column in product(range(rows), range(columns)):
        top, left = row * deep, column * wide
        found = polygons(areas.labels[top : top + deep, left : left + wide], STEP_M / areas.pixel_m)
        if found.rings:
            x, y = ((found.corners + np.array((left, top))) * areas.pixel_m + (areas.x_min, areas.y_min)).T
            # Of two roads above one another the lower: people seldom walk on a bridge of cars.
            up = np.array([network.height(*place, -math.inf) for place in zip(x.tolist(), y.tolist(), strict=True)])
            tiles.append(Tile(column, row, np.stack([x, up, y], axis=1), found.rings, found.labels))
    grid = Grid(areas.x_min, areas.y_min, wide * areas.pixel_m, deep * areas.pixel_m)
    content = navigation_mesh(tiles, grid)
    heap.give_back()
    return content
