"""All that rays can meet in a world: one map's still things and ground, and what moves at one moment.

Owns which thing a face belongs to and what that thing is called. The still part is built when the first ray is cast;
what moves keeps the trees of its figure, in its own frame, so that nothing is built again when it moves. Never touches
sensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carla_lite.protocol.wire import Vector
from carla_lite.rays import solids
from carla_lite.rays.caster import Caster, first
from carla_lite.rays.ground_tags import GroundTags
from carla_lite.rays.solids import Integers, Solid, dot, turned
from carla_lite.rays.sweep import between, touched
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import BoxActor, Drawn
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.sign_faces import SignFace
from carla_lite.scenery.statics import TAG_BUILDING, StaticBox
from carla_lite.scenery.vehicle_meshes import Detail, VehicleMesh, vehicle_mesh

NOTHING = -1
_PAINT = (128, 128, 128)
_PASSED_M = 1e-3
_MOST_MET = 1000


class Mover(NamedTuple):
    """Something that moves: its actor's id, its CityObjectLabel, and how it is drawn."""

    id: int
    tag: int
    drawn: Drawn


class Hits(NamedTuple):
    """What n rays meet first."""

    distances: FloatArray  # (n,) m; infinite where that is nothing
    normals: FloatArray  # (n, 3) of the faces, in the world's frame
    things: Integers  # (n,) numbers of a field's things, or NOTHING


@lru_cache(maxsize=512)
def _figure(mesh: VehicleMesh) -> Caster:
    return Caster(Solid.of(solids.figure(mesh)))


def _mesh(drawn: Drawn) -> VehicleMesh:
    """Return what is drawn from near; the paint and the lamps of vehicles make no difference to a ray."""
    if isinstance(drawn, BoxActor):
        return vehicle_mesh(drawn.shape, drawn.extent, _PAINT, Detail.FINE)
    return drawn.mesh((1.0, 0.0, 0.0), math.inf)


class StillField:
    """What stands on one map. Its things are buildings, posts, crowns, signs and at last the ground."""

    def __init__(self, network: RoadNetwork, scene: Scene, faces: Sequence[SignFace]) -> None:
        self.scene = scene
        self._network, self._faces = network, faces

    @cached_property
    def caster(self) -> Caster:
        """Its triangles: about a tenth of a second for a town."""
        first = len(self.scene.statics.boxes)
        signs = [
            solids.placed(part, face.pose)
            for thing, face in enumerate(self._faces, first)
            for part in solids.figure(_mesh(face), thing)
        ]
        lanes = self._network.lanes
        points = np.concatenate([edge for lane in lanes for edge in (lane.left, lane.centre, lane.right)])
        ground = solids.ground(points, first + len(self._faces))
        return Caster(Solid.of([*(part for part in solids.still(self.scene.mesh) if len(part.things)), *signs, ground]))

    @cached_property
    def tags(self) -> NDArray[np.uint32]:
        """The label of each thing; the ground's is a matter of place."""
        boxes = sorted(self.scene.statics.boxes, key=_order)
        return np.array([*(box.tag for box in boxes), *(face.tag for face in self._faces), 0], np.uint32)

    @cached_property
    def ground_tags(self) -> GroundTags:
        """The labels of the ground."""
        return GroundTags(self._network)

    @property
    def ground(self) -> int:
        """The number of the ground."""
        return len(self.tags) - 1

    @property
    def first_sign(self) -> int:
        """The number of the first sign."""
        return len(self.tags) - 1 - len(self._faces)


def _order(box: StaticBox) -> int:
    """Sort as ``StaticMesh.of`` does."""
    return 0 if box.tag == TAG_BUILDING else 1 if box.solid else 2


@dataclass(frozen=True)
class _Moved:
    """A figure in its place."""

    caster: Caster
    place: FloatArray  # (3,)
    axes: FloatArray  # (3, 3) forward, right and up in the world's frame
    reach_m: float

    @classmethod
    def of(cls, drawn: Drawn) -> _Moved:
        mesh, pose = _mesh(drawn), drawn.pose
        return cls(_figure(mesh), np.array((pose.x, pose.y, pose.z)), np.array(pose.axes()), mesh.reach_m)

    def outside(self, ways: FloatArray) -> FloatArray:
        """Return vectors (..., 3) of the figure's frame in the world's."""
        return turned(ways, self.axes)


class Field:
    """What rays can meet at one moment: the still field's things, and after them the movers.

    ``signs`` are the ids of the still field's signs.
    """

    def __init__(self, still: StillField, movers: Sequence[Mover], signs: Sequence[int]) -> None:
        self.still, self.movers, self.signs = still, movers, signs

    @cached_property
    def _moved(self) -> list[_Moved]:
        return [_Moved.of(mover.drawn) for mover in self.movers]

    def cast(self, eye: Vector, ways: FloatArray, reach_m: float) -> Hits:
        """Return what rays from one place meet within a distance (m); ``ways`` are n unit vectors (n, 3)."""
        start, count = np.array(eye), len(ways)
        eyes, far = np.broadcast_to(start, ways.shape), np.full(count, reach_m)
        distances, normals, things = first([self.still.caster], [count], eyes, ways, far)
        movers, rays = self._near(start, ways, reach_m)
        if len(rays):
            # All movers together, since a call costs more than its sums.
            places, axes = (np.array(each) for each in zip(*((m.place, m.axes) for m in self._moved), strict=True))
            inner = dot((start - places)[:, None], axes)[movers]
            turns = np.stack([dot(ways[rays], axes[movers, axis]) for axis in range(3)], axis=1)
            counts = np.bincount(movers, minlength=len(self._moved)).tolist()
            casters = [moved.caster for moved in self._moved]
            found, sides, _ = first(casters, counts, inner, turns, np.minimum(distances[rays], reach_m))
            np.minimum.at(distances, rays, found)
            nearest = np.flatnonzero((found == distances[rays]) & np.isfinite(found))
            rays, movers = rays[nearest], movers[nearest]
            things[rays] = len(self.still.tags) + movers
            normals[rays] = sum(sides[nearest, i, None] * axes[movers, i] for i in range(3))
        return Hits(np.maximum(distances, 0.0), normals, things)

    def _near(self, eye: FloatArray, ways: FloatArray, reach_m: float) -> tuple[Integers, Integers]:
        """Return the movers around which some rays pass, and those rays: a pair each, in the movers' order."""
        if not self._moved:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        away = np.array([moved.place for moved in self._moved]) - eye
        radii = np.array([moved.reach_m for moved in self._moved]) + 1e-3
        square = dot(away, away)
        near = np.flatnonzero(square < (reach_m + radii) ** 2)
        # A ray passes a ball when it looks towards its middle at no more than the angle of its tangents.
        least = np.where(square < radii**2, -np.inf, np.sqrt(np.maximum(square - radii**2, 0.0)))[near]
        passed = np.flatnonzero(away[near] @ ways.T >= least[:, None])
        return near[passed // len(ways)], passed % len(ways)

    def all_along(self, eye: Vector, end: Vector) -> list[tuple[Vector, int]]:
        """Return where the line from a place to another enters each thing that it meets, and the thing's label."""
        start, way = np.array(eye), np.array(end) - eye
        length = math.sqrt(float(dot(way, way)))
        ways, done = way[None] / max(length, 1e-9), 0.0
        found: dict[int, tuple[Vector, int]] = {}
        for _ in range(_MOST_MET):
            place = start + done * ways[0]
            x, y, z = place.tolist()
            hits = self.cast((x, y, z), ways, length - done)
            thing = int(hits.things[0])
            if thing == NOTHING:
                break
            x, y, z = (place + hits.distances[0] * ways[0]).tolist()
            found.setdefault(thing, ((x, y, z), int(self.tags(hits, np.array([[x, y, z]]))[0])))
            done += float(hits.distances[0]) + _PASSED_M
        return list(found.values())

    def tags(self, hits: Hits, places: FloatArray) -> NDArray[np.uint32]:
        """Return the CityObjectLabel of what rays meet at places (n, 3), 0 where that is nothing."""
        still = self.still
        known = np.concatenate([still.tags, np.array([*(mover.tag for mover in self.movers), 0], np.uint32)])
        tags = known[hits.things]
        on_ground = np.flatnonzero(hits.things == still.ground)
        if len(on_ground):
            tags[on_ground] = still.ground_tags.at(places[on_ground, 0], places[on_ground, 1])
        return tags

    def ids(self, hits: Hits) -> NDArray[np.uint32]:
        """Return the ids of the actors that rays meet, 0 where that is none."""
        still = self.still
        known = np.zeros(len(still.tags) + len(self.movers) + 1, np.uint32)
        known[still.first_sign : still.ground] = self.signs
        known[len(still.tags) : -1] = [mover.id for mover in self.movers]
        return known[hits.things]

    def tag(self, thing: int, x: float, y: float) -> int:
        """Return the label of one thing; of the ground, at a place."""
        hits = Hits(np.zeros(1), np.zeros((1, 3)), np.array([thing]))
        return int(self.tags(hits, np.array([[x, y, 0.0]]))[0])

    def numbers(self, things: Integers) -> Integers:
        """Return the places among the movers of things, -1 for what stands still."""
        return np.maximum(things - len(self.still.tags), -1)

    def mover(self, thing: int) -> int:
        """Return the place among the movers of one thing, -1 for what stands still."""
        return max(thing - len(self.still.tags), -1)

    def sign(self, thing: int) -> int:
        """Return the place among the signs of one thing, -1 for any other."""
        return thing - self.still.first_sign if self.still.first_sign <= thing < self.still.ground else -1

    def sweep(
        self, eye: Vector, way: Vector, radius_m: float, reach_m: float, movers: Sequence[int], only_movers: bool
    ) -> tuple[float, int] | None:
        """Return how far a ball goes from a place before it touches something, and which thing; None if it doesn't.

        Args:
            eye: where its middle begins.
            way: a unit vector.
            radius_m: of the ball.
            reach_m: how far it goes at most.
            movers: the numbers of those that it may touch.
            only_movers: whether it passes what stands still.
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
            if (moved.place > low - moved.reach_m).all() and (moved.place < high + moved.reach_m).all():
                corners.append(moved.place + moved.outside(moved.caster.solid.corners))
                things.append(np.full(len(corners[-1]), len(self.still.tags) + number))
        met = touched(start, along, radius_m, reach_m, np.concatenate(corners))
        return None if met is None else (met[0], int(np.concatenate(things)[met[1]]))
