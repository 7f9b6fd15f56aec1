"""All things that rays can hit in a world: a map's static things and ground, and what moves at one moment.

Owns which thing a face belongs to, and that thing's label and id. The static part is built with the first ray. Moving
things keep the trees of their shape, in its own frame: nothing is rebuilt when they move. Never touches sensors.
"""

from __future__ import annotations

import itertools
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
_PASSED_M, _SLACK_M, _SLACK_COS = 1e-3, 1e-2, 1e-4
_CORNERS = np.array(list(itertools.product((False, True), repeat=3)))[:, :, None]
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


def _cosines(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return for boxes between two corners (3, m) the cosine (m,) of the angle at the origin between the middle and the
    corner that is farthest from it; less than any where a box is all around."""
    corners = np.where(_CORNERS, low, high)  # (8, 3, m)
    middle = 0.5 * (low + high)
    lengths = np.sqrt((corners * corners).sum(axis=1) * (middle * middle).sum(axis=0))
    cosines: FloatArray = ((corners * middle).sum(axis=1) / np.maximum(lengths, 1e-9)).min(axis=0)
    return np.where(cosines > 0.0, cosines - _SLACK_COS, -np.inf)


def _near(
    middles: FloatArray, cosines: FloatArray, radii: FloatArray, ways: FloatArray, far: FloatArray
) -> tuple[Integers, Integers]:
    """Return the boxes that some rays pass near before they end, and those rays: a pair each.

    Args:
        middles: of m boxes, from the eye (3, m).
        cosines: of the angles around these within which the boxes are seen (m,).
        radii: of balls around the boxes (m,).
        ways: of the rays (3, n).
        far: how far away these end (n,).
    """
    lengths = np.sqrt(products(middles, middles))
    closest = lengths - radii - _SLACK_M
    near = np.flatnonzero(closest < far.max(initial=0.0))
    # No product of matrices, for which numpy wakes a thread on each core.
    towards = np.einsum("im,in->mn", middles[:, near].astype(np.float32), ways.astype(np.float32))
    least = (lengths * cosines)[near, None].astype(np.float32)
    boxes, rays = np.divmod(np.flatnonzero(towards >= least), ways.shape[1])
    boxes = near.take(boxes)
    passed = np.flatnonzero(far.take(rays) >= closest.take(boxes))
    return boxes.take(passed), rays.take(passed)


def _crosses(low: FloatArray, high: FloatArray, ways: FloatArray, far: FloatArray) -> NDArray[np.bool_]:
    """Return which rays from the origin (3, n) cross boxes, one each, between two corners (3, n), and no farther than
    ``far`` (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = low / ways, high / ways
    enters = np.maximum.reduce(np.fmin(one, other))
    leaves = np.minimum.reduce(np.fmax(one, other))
    crosses: NDArray[np.bool_] = (enters <= np.minimum(leaves, far)) & (leaves >= 0.0)
    return crosses


def _turned(ways: FloatArray, frames: FloatArray, of: Integers) -> FloatArray:
    """Return vectors (3, n) in a frame (3, 3) each, of which ``of`` (n,) says the number."""
    columns = frames.reshape(-1, 9).T.take(of, 1)
    return np.stack([products(ways, columns[row : row + 3]) for row in (0, 3, 6)])


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
        hits = Hits(*first([self.still.caster], [count], start, ways, np.full(count, reach_m)))
        if self._moved:
            self._meet(hits, start, ways, reach_m)
        return Hits(np.maximum(hits.distances, 0.0), hits.normals, hits.things)

    def _meet(self, hits: Hits, eye: FloatArray, ways: FloatArray, reach_m: float) -> None:
        """Update the hits with movers that are nearer."""
        # All movers together, since a call costs more than its sums: one pair for each ray that passes near a mover.
        casters = [moved.caster for moved in self._moved]
        places, axes = (np.array([each[part] for each in self._moved]) for part in (1, 2))
        far = np.minimum(hits.distances, reach_m)
        eyes = np.stack([dot(eye[:, 0] - places, axes[:, axis]) for axis in range(3)])
        low = np.array([caster.low for caster in casters]).T - eyes
        high = np.array([caster.high for caster in casters]).T - eyes
        middles = _turned(0.5 * (low + high), axes.transpose(0, 2, 1), np.arange(len(casters)))
        movers, rays = _near(middles, _cosines(low, high), 0.5 * np.linalg.norm(high - low, axis=0), ways, far)
        inner, far = _turned(ways.take(rays, 1), axes, movers), far.take(rays)
        kept = np.flatnonzero(_crosses(low.take(movers, 1), high.take(movers, 1), inner, far + _SLACK_M))
        movers, rays, far, inner = movers.take(kept), rays.take(kept), far.take(kept), inner.take(kept, 1)
        counts = np.bincount(movers, minlength=len(casters)).tolist()
        distances, normals, parts = first(casters, counts, eyes.take(movers, 1), inner, far)
        np.minimum.at(hits.distances, rays, distances)
        nearest = np.flatnonzero((distances == hits.distances[rays]) & (parts != NOTHING))
        rays, movers, normals = rays[nearest], movers[nearest], normals.take(nearest, 1)
        hits.things[rays] = self._first + _PARTS * movers + parts[nearest]
        hits.normals[:, rays] = _turned(normals, axes.transpose(0, 2, 1), movers)

    def all_along(self, eye: Vector, end: Vector) -> list[tuple[Vector, int]]:
        """Return where the line between two places enters each thing, and the thing's label: of a bridge and the road
        under it, both.
        """
        start, way = np.array(eye), np.array(end) - eye
        length, done = math.sqrt(float(dot(way, way))), 0.0
        way /= max(length, 1e-9)
        found: list[tuple[Vector, int]] = []
        met: set[int] = set()
        for _ in range(_MOST_MET):
            x, y, z = (start + done * way).tolist()
            hits = self.cast((x, y, z), way[:, None], length - done)
            thing = int(hits.things[0])
            if thing == NOTHING:
                break
            done += float(hits.distances[0])
            x, y, z = (start + done * way).tolist()
            if thing not in met or thing == self.still.ground:
                found.append(((x, y, z), self.tag(thing, x, y)))
            met.add(thing)
            done += _PASSED_M
        return found

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
