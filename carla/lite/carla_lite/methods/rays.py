"""RPC methods that ask what a straight line hits: ``world.cast_ray``, ``project_point`` and ``ground_projection``.

Rays are as the client sends them: metres, world frame. ``rays`` owns what they can hit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from carla_lite.methods.arguments import Direction, Finite, Location
from carla_lite.methods.table import method
from carla_lite.rays.field import NOTHING
from carla_lite.world import World


@method
def cast_ray(world: World, start: Location, end: Location) -> list[Any]:
    """Return every point, with its label, where the line between two places enters something; nearest first."""
    return [[list(place), label] for place, label in world.rays().all_along(start, end)]


@method
def project_point(world: World, start: Location, direction: Direction, distance: Finite) -> list[Any]:
    """Return whether something is hit in a direction within a distance (m), and the nearest point with its label."""
    way = np.array(direction)[:, None] / (math.hypot(*direction) or 1.0)
    rays = world.rays()
    hits = rays.cast(start, way, distance)
    if hits.things[0] == NOTHING:
        return [False, [[0.0, 0.0, 0.0], 0]]
    x, y, z = (np.array(start) + hits.distances[0] * way[:, 0]).tolist()
    return [True, [[x, y, z], rays.tag(int(hits.things[0]), x, y)]]
