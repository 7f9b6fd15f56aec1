"""RPC methods that ask what a straight line meets: ``world.cast_ray``, ``project_point`` and ``ground_projection``.

Owns the intersections with the ground and with upright boxes. Rays are what the client sends: metres, world frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from carla_lite.methods.arguments import Direction, Location
from carla_lite.methods.table import method
from carla_lite.protocol.wire import Vector
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.world import World

_ROADS, _SIDEWALKS, _TERRAIN = 1, 2, 10
_LABELS = {"driving": _ROADS, "shoulder": _ROADS, "parking": _ROADS, "bidirectional": _ROADS, "sidewalk": _SIDEWALKS}
_STEP_M, _MOST_STEPS, _HALVINGS = 1.0, 2000, 24


class _Box(NamedTuple):
    """An upright box: middle, half sizes (m), yaw (rad), and what it is."""

    centre: Vector
    extent: Vector
    yaw: float
    label: int


@method
def cast_ray(world: World, start: Location, end: Location) -> list[Any]:
    """Return every point, and its label, where the line from one place to another enters something; nearest first."""
    return [[_along(start, end, part), label] for part, label in _met(world, start, end)]


@method
def project_point(world: World, start: Location, direction: Direction, distance: float) -> list[Any]:
    """Return whether something is met in a direction within a distance (m), and the nearest point with its label."""
    length = math.hypot(*direction) or 1.0
    x, y, z = (at + float(distance) * part / length for at, part in zip(start, direction, strict=True))
    for part, label in _met(world, start, (x, y, z)):
        return [True, [_along(start, (x, y, z), part), label]]
    return [False, [[0.0, 0.0, 0.0], 0]]


def _along(a: Vector, b: Vector, part: float) -> list[float]:
    return [p + part * (q - p) for p, q in zip(a, b, strict=True)]


def _met(world: World, a: Vector, b: Vector) -> list[tuple[float, int]]:
    """Return how far along the line from a to b things begin (0 to 1), with their labels, ascending."""
    met = [(part, box.label) for box in _boxes(world, a, b) if (part := _enters(box, a, b)) is not None]
    ground = _lands(world.network, a, b)
    if ground is not None:
        x, y, _ = _along(a, b, ground)
        met.append((ground, _surface(world.network, x, y)))
    return sorted(met)


def _boxes(world: World, a: Vector, b: Vector) -> Iterator[_Box]:
    statics = world.scene.statics
    for i in statics.touching(min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])):
        box = statics.boxes[i]
        yield _Box(box.centre, box.extent, box.yaw, box.tag)
    for actor in world.moving():
        seen = actor.drawn(world.elapsed_s)
        label = actor.blueprint.semantic_tags[0]
        yield _Box((seen.pose.x, seen.pose.y, seen.pose.z), seen.extent, seen.pose.yaw, label)


def _enters(box: _Box, a: Vector, b: Vector) -> float | None:
    """Return where the line enters the box (0 to 1); None where it passes it by, or begins inside."""
    cos, sin = math.cos(box.yaw), math.sin(box.yaw)
    first, last = -math.inf, 1.0
    starts, ends = ([p - c for p, c in zip(point, box.centre, strict=True)] for point in (a, b))
    turned = [(cos * x + sin * y, cos * y - sin * x, z) for x, y, z in (starts, ends)]
    for p, q, half in zip(*turned, box.extent, strict=True):
        if p == q:
            if abs(p) > half:
                return None
            continue
        near, far = sorted(((-half - p) / (q - p), (half - p) / (q - p)))
        first, last = max(first, near), min(last, far)
    return first if 0.0 <= first <= last else None


def _lands(network: RoadNetwork, a: Vector, b: Vector) -> float | None:
    """Return where the line comes down on the ground (0 to 1), or None."""

    def above_m(part: float) -> float:
        x, y, z = _along(a, b, part)
        return z - network.height(x, y)

    steps = min(_MOST_STEPS, 1 + int(math.hypot(b[0] - a[0], b[1] - a[1]) / _STEP_M))
    parts = [step / steps for step in range(steps + 1)]
    for before, after in pairwise(parts):
        if above_m(before) >= 0.0 > above_m(after):
            low, high = before, after
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if above_m(middle) >= 0.0 else (low, middle)
            return low
    return None


def _surface(network: RoadNetwork, x: float, y: float) -> int:
    """Return the label of the ground at a place."""
    centres, halves, labels = _samples(network)
    outside = np.hypot(centres[:, 0] - x, centres[:, 1] - y) - np.hypot(halves, 0.5 * _STEP_M)
    nearest = int(outside.argmin())
    return int(labels[nearest]) if outside[nearest] <= 0.0 else _TERRAIN


@lru_cache(maxsize=1)
def _samples(network: RoadNetwork) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the middle (n, 2), half the width and the label of all lanes, a sample each metre."""
    lanes = network.lanes
    return (
        np.concatenate([lane.centre[:, :2] for lane in lanes]),
        np.concatenate([0.5 * lane.width_m for lane in lanes]),
        np.concatenate([np.full(len(lane.centre), float(_LABELS.get(lane.kind, _TERRAIN))) for lane in lanes]),
    )
