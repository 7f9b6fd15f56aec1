"""The static things seen from around one place, as flat polygons in drawing order.

Owns everything that doesn't depend on the camera's exact place or direction: which walls face it, what hides what,
colours with haze. A vista serves all poses within a cell of a few metres, so that a frame costs one projection. Never
touches pixels.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.meshes import FACES, StaticMesh

CELL_M = 5.0
KEPT_BYTES = 64 << 20
FARTHEST_M = 400.0
SMALLEST_BUILDING_PX = 3.5
SMALLEST_POST_PX = 0.4
SMALLEST_CROWN_PX = 0.8
LAYERED_CROWN_PX = 3.0
"""Radius in pixels below which a crown is a single disc."""
BUILDING_M = 10.0
WINDOW_WALL_PX = 26.0
FINE_FOCAL = 100.0

LAMP_M, LEAST_LAMP_PX = 0.3, 0.8
LAMP_BGR = np.array((196.0, 232.0, 255.0))

IN_FRONT = -1e4
"""Added to the distance of things that no building hides: they are drawn after all buildings."""
_BEHIND_M = 1e-2
"""How far behind the farthest building in front of it a hidden thing is drawn."""

_TURN = np.linspace(0.0, math.tau, 10, endpoint=False)
_LEAFY = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1) * (1.0 + 0.1 * np.sin(3.0 * _TURN + 1.0))[:, None]
_CROWN_LAYERS = ((1.0, 0.0, 0.72), (0.78, 0.2, 0.98), (0.42, 0.42, 1.2))
_SMALL_CROWN = (1.0, 0.0, 0.86)
"""For the balls of a crown: size, shift towards the sun, brightness."""

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Walls:
    """Footprints of buildings that may hide something: n rectangles."""

    frames: FloatArray  # (2n, 2) the axes along, then those across, in units of the half sizes
    middles: FloatArray  # (2n,) the centres in these frames
    distances: FloatArray  # (n, 1) from the vista's origin

    @classmethod
    def of(cls, centres: FloatArray, turns: FloatArray, halves: FloatArray, distances: FloatArray) -> Walls:
        """Return the footprints at ``centres`` (n, 2), turned by ``turns`` (n, 2), cosine and sine of the yaw."""
        cos, sin = turns.T
        frames = np.concatenate([turns, np.stack([-sin, cos], axis=1)]) / halves[:, :2].T.reshape(-1, 1)
        middles = (frames * np.tile(centres, (2, 1))).sum(axis=1)
        return cls(frames, middles, distances[:, None])

    def hide(self, eye: FloatArray, points: FloatArray) -> FloatArray:
        """Return for places (m, ≥ 2) the distance of the farthest building in front of them, or -1 if there is none.

        Seen from above: does the line from the eye cross a footprint (slab test)? All pairs at once.
        """
        if not len(self.distances):
            return np.full(len(points), -1.0)
        # Both axes of each footprint together, in its frame: where the line is halfway between the two edges, and how
        # far from there the edges are.
        count = len(self.distances)
        share = 1.0 / (self.frames @ (points[:, :2] - eye[:2]).T + 1e-30)
        middle = (self.middles - self.frames @ eye[:2])[:, None] * share
        half = np.abs(share)
        enter, leave = middle - half, middle + half
        first = np.maximum(np.maximum(enter[:count], enter[count:]), 0.0)
        last = np.minimum(np.minimum(leave[:count], leave[count:]), 1.0)
        hidden: FloatArray = np.maximum.reduce(np.where(first < last, self.distances, -1.0), axis=0)
        return hidden

    def keys(self, eye: FloatArray, points: FloatArray, distances: FloatArray) -> FloatArray:
        """Return the sorting keys (m,) of things at ``points``, which are ``distances`` (m,) away: behind a building
        that is in front of them, else before all buildings.
        """
        behind = self.hide(eye, points)
        return np.where(behind >= 0.0, behind + _BEHIND_M, distances + IN_FRONT)


@dataclass(frozen=True)
class Vista:
    """f convex polygons from far to near."""

    origin: FloatArray  # (3,)
    points: Float32
    """(4, c · f) x, y and z relative to the origin, and 1: the first corner of each polygon, then the second of each …
    Polygons with fewer than c corners repeat their last one.
    """
    corners: tuple[int, ...]
    """Number of corners of each polygon."""
    keys: tuple[float, ...]
    """Sorting key of each polygon, descending."""
    colours: tuple[tuple[float, float, float], ...]
    windowed: tuple[tuple[int, int] | None, ...]
    """Building and wall whose windows are drawn over the polygon."""
    walls: Walls
    planes: FloatArray
    """(4, f) unit normals, and how far the origin is behind each polygon's plane (m)."""
    boxes: NDArray[np.intp]
    """(f,) index among the map's boxes of what each polygon shows."""
    tags: NDArray[np.intp]
    """(f,) its CityObjectLabel; 0 for the light of a lamp."""

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return self.points.nbytes + self.planes.nbytes + 300 * len(self.keys)


class Vistas:
    """The vistas of a map, made when first needed; the oldest are dropped when they take more than 64 MiB."""

    def __init__(self, mesh: StaticMesh) -> None:
        self._mesh = mesh
        self._kept: OrderedDict[tuple[int, int, int, int, Daylight], Vista] = OrderedDict()
        self._bytes = 0

    def at(self, x: float, y: float, z: float, focal: float, daylight: Daylight) -> Vista:
        """Return the vista of the cell around a place for cameras of about this focal length (pixels)."""
        key = (math.floor(x / CELL_M), math.floor(y / CELL_M), math.floor(z / CELL_M), round(focal), daylight)
        vista = self._kept.get(key)
        if vista is None:
            eye = np.array([(index + 0.5) * CELL_M for index in key[:3]])
            vista = self._kept[key] = _look_around(self._mesh, eye, focal, daylight)
            self._bytes += vista.nbytes
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return vista


@dataclass(frozen=True)
class _Pieces:
    """k polygons of n corners each."""

    keys: FloatArray  # (k,)
    points: FloatArray  # (k, n, 3)
    colours: FloatArray  # (k, 3)
    windowed: list[tuple[int, int] | None]
    boxes: NDArray[np.intp]  # (k,)


def _look_around(mesh: StaticMesh, eye: FloatArray, focal: float, daylight: Daylight) -> Vista:
    away = eye - mesh.centres
    farthest = min(FARTHEST_M, BUILDING_M * focal / SMALLEST_BUILDING_PX)
    near = np.flatnonzero(np.hypot(away[:, 0], away[:, 1]) - mesh.reaches < farthest)
    (cos, sin), half, away = mesh.turns[near].T, mesh.halves[near], away[near]
    seen_from = np.stack([away[:, 0] * cos + away[:, 1] * sin, away[:, 1] * cos - away[:, 0] * sin, away[:, 2]], axis=1)
    beyond = np.maximum(np.abs(seen_from[:, :2]) - half[:, :2], 0.0)
    distances = np.hypot(beyond[:, 0], beyond[:, 1])
    walls = Walls.of(mesh.centres[near, :2], mesh.turns[near], half[:, :2], distances)

    groups = [_buildings(mesh, near, seen_from, distances, focal, daylight), _posts(mesh, eye, walls, focal, daylight)]
    groups.extend(_crowns(mesh, eye, walls, focal, daylight))
    if daylight.lamps > 0.0:
        groups.append(_lamps(mesh, eye, walls, focal, daylight))
    keys = np.concatenate([group.keys for group in groups])
    order = np.argsort(-keys, kind="stable").tolist()
    colours = np.concatenate([group.colours for group in groups]).tolist()
    windowed = [wall for group in groups for wall in group.windowed]
    most = max(group.points.shape[1] for group in groups)
    sizes = [group.points.shape[1] for group in groups for _ in group.windowed]
    padded = [group.points[:, np.minimum(np.arange(most), group.points.shape[1] - 1)] - eye for group in groups]
    points = np.ones((4, most, len(order)), np.float32)
    points[:3] = np.concatenate(padded)[order].transpose(2, 1, 0)
    planes = np.concatenate([_planes(group.points - eye) for group in groups])
    boxes = np.concatenate([group.boxes for group in groups])
    return Vista(
        eye,
        points.reshape(4, -1),
        tuple(sizes[i] for i in order),
        tuple(keys[order].tolist()),
        tuple(tuple(colours[i]) for i in order),
        tuple(windowed[i] for i in order),
        walls,
        np.ascontiguousarray(planes[order].T),
        boxes[order],
        np.where(boxes >= 0, mesh.tags[boxes], 0)[order] if len(order) else boxes,
    )


def _planes(points: FloatArray) -> FloatArray:
    """Return (k, 4) the unit normals of polygons (k, n, 3), and how far the origin is behind each."""
    first, second, third = (points[:, points.shape[1] * part // 3] for part in range(3))
    normals = np.cross(second - first, third - first)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    return np.column_stack([normals, (normals * first).sum(axis=1)])


def _buildings(
    mesh: StaticMesh,
    near: NDArray[np.intp],
    seen_from: FloatArray,
    distances: FloatArray,
    focal: float,
    daylight: Daylight,
) -> _Pieces:
    """Return the faces that are visible from any place in the cell; of one building, faces towards its centre come
    last.
    """
    half = mesh.halves[near]
    # How far the cell's centre is in front of each face; every place in the cell is within the slack of that.
    ahead = np.stack([seen_from[:, 0], -seen_from[:, 0], seen_from[:, 1], -seen_from[:, 1], seen_from[:, 2]], axis=1)
    ahead -= half[:, [0, 0, 1, 1, 2]]
    which, face = np.nonzero(ahead > -CELL_M * np.array((0.71, 0.71, 0.71, 0.71, 0.5)))
    turned = np.argsort(ahead[which, face], kind="stable")
    which, face = which[turned], face[turned]
    detailed = (focal * 2.0 * half[:, 2] > WINDOW_WALL_PX * np.maximum(distances, 1.0))[which] & (face < 4)
    buildings = near[which]
    colours = mesh.colours[buildings, face] * daylight.shade(mesh.normals[buildings, face] @ daylight.sun)
    return _Pieces(
        distances[which],
        mesh.corners[buildings[:, None], FACES[face]],
        daylight.hazed(colours, distances[which]),
        [
            (building, wall) if shown else None
            for building, wall, shown in zip(buildings.tolist(), face.tolist(), detailed.tolist(), strict=True)
        ],
        mesh.numbers[0][buildings],
    )


def _posts(mesh: StaticMesh, eye: FloatArray, walls: Walls, focal: float, daylight: Daylight) -> _Pieces:
    """Return posts, their arms and trunks as strips turned to the eye; those behind a building are left out."""
    away = mesh.post_ends[:, 0] - eye
    distance = np.maximum(np.hypot(away[:, 0], away[:, 1]), 1e-3)
    near = np.flatnonzero(distance < np.minimum(FARTHEST_M, mesh.post_widths * focal / SMALLEST_POST_PX))
    near = near[walls.hide(eye, mesh.post_ends[near, 0]) < 0.0]
    away, distance = away[near], distance[near]
    bottom, top = mesh.post_ends[near].transpose(1, 0, 2)
    aside = np.cross(top - bottom, away)
    aside *= (0.5 * mesh.post_widths[near] / np.maximum(np.linalg.norm(aside, axis=1), 1e-6))[:, None]
    outline = np.stack([bottom - aside, top - aside, top + aside, bottom + aside], axis=1)
    colours = daylight.hazed(mesh.post_colours[near] * daylight.level, distance)
    return _Pieces(distance + IN_FRONT, outline, colours, [None] * len(near), mesh.numbers[1][near])


def _lamps(mesh: StaticMesh, eye: FloatArray, walls: Walls, focal: float, daylight: Daylight) -> _Pieces:
    """Return shining street lamps as discs turned to the eye; those behind a building are left out."""
    away = mesh.lamps - eye
    distance = np.maximum(np.linalg.norm(away, axis=1), 1e-3)
    near = np.flatnonzero(distance < FARTHEST_M)
    near = near[walls.hide(eye, mesh.lamps[near]) < 0.0]
    distance = distance[near]
    right = np.stack([-away[near, 1], away[near, 0], np.zeros(len(near))], axis=1)
    right /= np.maximum(np.hypot(away[near, 0], away[near, 1]), 1e-3)[:, None]
    radius = np.maximum(LAMP_M, LEAST_LAMP_PX / focal * distance)[:, None, None]
    round_ = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)
    disc = round_[:, :1] * right[:, None] + round_[:, 1:] * np.array((0.0, 0.0, 1.0))
    seen = daylight.hazed(np.tile(daylight.lamps * LAMP_BGR, (len(near), 1)), 0.5 * distance)
    outlines, nothing = mesh.lamps[near, None] + radius * disc, np.full(len(near), -1)
    return _Pieces(distance - 1.0 + IN_FRONT, outlines, seen, [None] * len(near), nothing)


def _crowns(mesh: StaticMesh, eye: FloatArray, walls: Walls, focal: float, daylight: Daylight) -> list[_Pieces]:
    """Return the crowns of trees as discs turned to the eye, brighter towards the sun: the darkest disc first.

    A crown that is small in the image has a single disc, with the brightness of the two largest together.
    """
    away = mesh.crown_centres - eye
    distance = np.maximum(np.linalg.norm(away, axis=1), 1e-3)
    near = np.flatnonzero(distance < np.minimum(FARTHEST_M, mesh.crown_radii * focal / SMALLEST_CROWN_PX))
    ahead, distance = away[near] / distance[near, None], distance[near]
    right = np.stack([-ahead[:, 1], ahead[:, 0], np.zeros(len(near))], axis=1)
    right /= np.maximum(np.hypot(ahead[:, 0], ahead[:, 1]), 1e-3)[:, None]
    up = np.cross(ahead, right)
    sunny = right * (right @ daylight.sun)[:, None] + up * (up @ daylight.sun)[:, None]
    disc = _LEAFY[:, :1] * right[:, None] + _LEAFY[:, 1:] * up[:, None]
    key = walls.keys(eye, mesh.crown_centres[near], distance - 0.5)
    centres, radii = mesh.crown_centres[near, None], mesh.crown_radii[near, None, None]
    layered = mesh.crown_radii[near] * focal >= LAYERED_CROWN_PX * distance

    def layer(part: float, shift: float, light: float, of: NDArray[np.bool_]) -> _Pieces:
        return _Pieces(
            key[of],
            (centres + radii * (part * disc + shift * sunny[:, None]))[of],
            daylight.hazed(np.minimum(mesh.crown_colours[near] * light, 255.0) * daylight.level, distance)[of],
            [None] * int(of.sum()),
            mesh.numbers[2][near[of]],
        )

    layers = _CROWN_LAYERS if focal > FINE_FOCAL else _CROWN_LAYERS[:2]
    return [layer(*_SMALL_CROWN, ~layered), *(layer(*shape, layered) for shape in layers)]
