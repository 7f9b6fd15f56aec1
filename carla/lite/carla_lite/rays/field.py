"""All things that rays can hit in a world: a map's static things and ground, and what moves at one moment.

Owns which thing a face belongs to, and that thing's label and id. The static part is built with the first ray. Moving
things keep the trees of their shape, in its own frame: nothing is rebuilt when they move. Never touches sensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carla_lite.protocol.wire import Vector
from carla_lite.rays import solids
from carla_lite.rays.caster import Caster, first
from carla_lite.rays.solids import Integers, Solid, dot, products, turned
from carla_lite.rays.sweep import between, touched
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import BoxActor, Drawn
from carla_lite.scenery.paint import TAG_TERRAIN
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.sign_faces import SignFace
from carla_lite.scenery.surfaces import TAG_RIDER
from carla_lite.scenery.vehicle_meshes import Detail, VehicleMesh, vehicle_mesh

NOTHING, FARTHEST_M = -1, 1e6
_PARTS = 2
"""Things per moving actor: the actor and its rider."""
_PAINT = (128, 128, 128)
_PASSED_M, _SLACK_M = 1e-3, 1e-2
_MOST_MET = 1000


class Hits(NamedTuple):
    """First hits of n rays."""

    distances: FloatArray  # (n,) m; infinite without a hit
    normals: FloatArray  # (3, n) of the faces, in the world's frame
    things: Integers  # (n,) numbers of a field's things, or NOTHING


@lru_cache(maxsize=512)
def _figure(mesh: VehicleMesh) -> Caster:
    return Caster(Solid.of(solids.figure(mesh)))


def _mesh(drawn: Drawn) -> VehicleMesh:
    """Return the shape as drawn from near; paint and lamps don't matter to a ray."""
    if isinstance(drawn, BoxActor):
        return vehicle_mesh(drawn.shape, drawn.extent, _PAINT, Detail.FINE)
    return drawn.mesh((1.0, 0.0, 0.0), math.inf)


class StillField:
    """Static things of one map: the scene's boxes, heads and plates of signs, and last the ground."""

    def __init__(self, network: RoadNetwork, scene: Scene, signs: Sequence[SignFace]) -> None:
        self.scene = scene
        self._network, self._signs = network, signs
        self.first_sign = len(scene.statics.boxes)
        self.ground = self.first_sign + len(signs)

    @cached_property
    def caster(self) -> Caster:
        """Its triangles; they take a tenth of a second for a town."""
        groups = solids.still(self.scene.mesh)
        for thing, face in enumerate(self._signs, self.first_sign):
            groups += [solids.placed(part, face.pose, thing) for part in solids.figure(_mesh(face))]
        lanes = self._network.lanes
        points = np.concatenate([edge for lane in lanes for edge in (lane.left, lane.centre, lane.right)])
        return Caster(Solid.of([*groups, solids.ground(points, self.ground)]))

    @cached_property
    def tags(self) -> NDArray[np.uint32]:
        """The label of each thing; the ground's depends on the place."""
        return np.array([*self.scene.mesh.tags, *(sign.tag for sign in self._signs), TAG_TERRAIN], np.uint32)

    def ground_tags(self, places: FloatArray) -> NDArray[np.uint8]:
        """Return the labels of the ground at places (≥ 2, n)."""
        picture = self.scene.labels
        (labels,), scale = picture.levels, picture.metres_per_pixel
        column, row = (
            ((at - low) // scale).astype(np.intp)
            for at, low in zip(places[:2], (picture.x_min, picture.y_min), strict=True)
        )
        inside = (row >= 0) & (row < len(labels)) & (column >= 0) & (column < labels.shape[1])
        tags: NDArray[np.uint8] = np.where(inside, labels[row * inside, column * inside], np.uint8(TAG_TERRAIN))
        return tags


def _crosses(low: FloatArray, high: FloatArray, ways: FloatArray) -> NDArray[np.bool_]:
    """Return which rays from the origin (3, n) cross their boxes, given by two corners (3, n)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = low / ways, high / ways
    enters = np.maximum.reduce(np.fmin(one, other))
    leaves = np.minimum.reduce(np.fmax(one, other))
    crosses: NDArray[np.bool_] = (enters <= leaves) & (leaves >= 0.0)
    return crosses


def _turned(ways: FloatArray, frames: FloatArray, of: Integers) -> FloatArray:
    """Return vectors (3, n), each in its frame (3, 3); ``of`` (n,) has the frame's number."""
    x, y, z = ways
    rows = [x * row[of, 0] + y * row[of, 1] + z * row[of, 2] for row in frames.transpose(1, 0, 2)]
    return np.stack(rows)


class _Moved(NamedTuple):
    """A shape at its place."""

    caster: Caster
    place: Vector
    axes: tuple[Vector, ...]
    """Forward, right and up in the world's frame."""
    reach_m: float

    @classmethod
    def of(cls, drawn: Drawn) -> _Moved:
        mesh, pose = _mesh(drawn), drawn.pose
        return cls(_figure(mesh), (pose.x, pose.y, pose.z), pose.axes(), mesh.reach_m)

    def triangles(self) -> FloatArray:
        """Return its triangles (t, 3, 3) in the world's frame."""
        corners = self.caster.solid.corners.reshape(-1, 3)
        places: FloatArray = np.array(self.place) + turned(corners.T, self.axes).T
        return places.reshape(-1, 3, 3)


class Field:
    """All things that rays can hit at one moment: the static field's things, then two per mover, itself and its rider.

    ``movers`` are the shapes for cameras, ``signs`` the ids of the static field's signs.
    """

    def __init__(self, still: StillField, movers: Sequence[Drawn], signs: Sequence[int]) -> None:
        self.still, self.movers, self.signs = still, movers, signs
        self._first = still.ground + 1

    @cached_property
    def _moved(self) -> list[_Moved]:
        return [_Moved.of(drawn) for drawn in self.movers]

    def cast(self, eye: Vector, ways: FloatArray, reach_m: float) -> Hits:
        """Return what rays from one place hit within a distance (m); ``ways`` are n unit vectors (3, n)."""
        start, count = np.array(eye)[:, None], ways.shape[1]
        far = np.full(count, reach_m)
        hits = Hits(*first([self.still.caster], [count], np.broadcast_to(start, ways.shape), ways, far))
        if self._moved:
            self._meet(hits, start, ways, reach_m)
        return Hits(np.maximum(hits.distances, 0.0), hits.normals, hits.things)

    def _meet(self, hits: Hits, eye: FloatArray, ways: FloatArray, reach_m: float) -> None:
        """Update the hits with movers that are nearer."""
        # All movers together, since a call costs more than its sums: one pair for each ray that passes near a mover.
        casters = [moved.caster for moved in self._moved]
        places, axes = (np.array([each[part] for each in self._moved]) for part in (1, 2))
        movers, rays = self._near(places - eye[:, 0], ways, reach_m)
        eyes = np.stack([dot(eye[:, 0] - places, axes[:, axis]) for axis in range(3)])
        inner = _turned(ways[:, rays], axes, movers)
        low = np.array([caster.low for caster in casters]).T - eyes
        high = np.array([caster.high for caster in casters]).T - eyes
        kept = np.flatnonzero(_crosses(low[:, movers], high[:, movers], inner))
        movers, rays, inner = movers[kept], rays[kept], inner[:, kept]
        counts = np.bincount(movers, minlength=len(casters)).tolist()
        far = np.minimum(hits.distances[rays], reach_m)
        distances, normals, parts = first(casters, counts, eyes[:, movers], inner, far)
        np.minimum.at(hits.distances, rays, distances)
        nearest = np.flatnonzero((distances == hits.distances[rays]) & (parts != NOTHING))
        rays, movers, normals = rays[nearest], movers[nearest], normals[:, nearest]
        hits.things[rays] = self._first + _PARTS * movers + parts[nearest]
        hits.normals[:, rays] = _turned(normals, axes.transpose(0, 2, 1), movers)

    def _near(self, away: FloatArray, ways: FloatArray, reach_m: float) -> tuple[Integers, Integers]:
        """Return pairs of movers, at ``away`` from the eye (m, 3), and rays that pass near them."""
        radii = np.array([moved.reach_m for moved in self._moved]) + _SLACK_M
        square = dot(away, away)
        near = np.flatnonzero(square < (reach_m + radii) ** 2)
        # A ray passes a ball if the angle to its centre is at most that of the ball's tangents. No matrix product here,
        # for which numpy wakes a thread on each core.
        least = np.where(square < radii**2, -np.inf, np.sqrt(np.maximum(square - radii**2, 0.0)))[near, None]
        towards = products(away[near].T[:, :, None].astype(np.float32), ways[:, None].astype(np.float32))
        passed = np.flatnonzero(towards >= least)
        return near[passed // ways.shape[1]], passed % ways.shape[1]

    def all_along(self, eye: Vector, end: Vector) -> list[tuple[Vector, int]]:
        """Return where the line between two places enters each thing, and the thing's label."""
        start, way = np.array(eye), np.array(end) - eye
        length, done = math.sqrt(float(dot(way, way))), 0.0
        way /= max(length, 1e-9)
        found: dict[int, tuple[Vector, int]] = {}
        for _ in range(_MOST_MET):
            x, y, z = (start + done * way).tolist()
            hits = self.cast((x, y, z), way[:, None], length - done)
            thing = int(hits.things[0])
            if thing == NOTHING:
                break
            done += float(hits.distances[0])
            x, y, z = (start + done * way).tolist()
            found.setdefault(thing, ((x, y, z), self.tag(thing, x, y)))
            done += _PASSED_M
        return list(found.values())

    def tags(self, things: Integers, places: FloatArray) -> NDArray[np.uint32]:
        """Return the CityObjectLabel of hits at places (3, n); 0 without a hit."""
        moving = [tag for drawn in self.movers for tag in (drawn.tag, TAG_RIDER)]
        tags = np.concatenate([self.still.tags, np.array([*moving, 0], np.uint32)])[things]
        on_ground = np.flatnonzero(things == self.still.ground)
        if len(on_ground):
            tags[on_ground] = self.still.ground_tags(places[:, on_ground])
        return tags

    def tag(self, thing: int, x: float, y: float) -> int:
        """Return the label of one thing; the ground's depends on the place."""
        return int(self.tags(np.array([thing]), np.array([[x], [y]]))[0])

    def ids(self, things: Integers) -> NDArray[np.uint32]:
        """Return the ids of the actors hit; 0 for none."""
        ids = np.zeros(self._first + _PARTS * len(self.movers) + 1, np.uint32)
        ids[self.still.first_sign : self.still.ground] = self.signs
        ids[self._first : -1] = np.repeat([drawn.actor for drawn in self.movers], _PARTS)
        return ids[things]

    def numbers(self, things: Integers) -> Integers:
        """Return the index of each thing among the movers; -1 for static things and for no hit."""
        return np.maximum((things - self._first) // _PARTS, -1)

    def sign(self, thing: int) -> int:
        """Return the index of a thing among the signs; -1 for any other."""
        return thing - self.still.first_sign if self.still.first_sign <= thing < self.still.ground else -1

    def sweep(
        self, eye: Vector, way: Vector, radius_m: float, reach_m: float, movers: Sequence[int], only_movers: bool
    ) -> tuple[float, int] | None:
        """Return how far a ball moves from a place before it touches something, and which thing; None if nothing.

        Args:
            eye: start of its centre.
            way: a unit vector.
            radius_m: radius of the ball.
            reach_m: longest way.
            movers: numbers of the movers that it may touch.
            only_movers: whether it passes through static things.
        """
        start, along = np.array(eye), np.array(way)
        ends = np.stack([start, start + reach_m * along])
        low, high = ends.min(axis=0) - radius_m, ends.max(axis=0) + radius_m
        corners, things = [np.zeros((0, 3, 3))], [np.zeros(0, np.intp)]
        if not only_movers:
            solid = self.still.caster.solid
            near = np.flatnonzero(between(solid.corners, low, high))
            corners.append(solid.corners[near])
            things.append(solid.things[solid.faces[near]])
        for number in movers:
            moved = self._moved[number]
            place = np.array(moved.place)
            if (place > low - moved.reach_m).all() and (place < high + moved.reach_m).all():
                corners.append(moved.triangles())
                things.append(np.full(len(corners[-1]), self._first + _PARTS * number))
        met = touched(start, along, radius_m, reach_m, np.concatenate(corners))
        return None if met is None else (met[0], int(np.concatenate(things)[met[1]]))
