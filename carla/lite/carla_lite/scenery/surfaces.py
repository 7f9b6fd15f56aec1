"""The surface that each pixel of a picture shows: which thing, how far away, and its orientation.

Owns the numbers with which a picture's strokes are filled, and the tables behind them. The strokes are those of the
colours, so silhouettes agree. Left out are strokes that only shine (glare, lamp light, rain), that lie flat on another
face of their thing, and clients' drawings; a vehicle's shadow counts as ground. Knows no wire format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.backdrop import GROUND_END_M, TAG_SKY
from carla_lite.scenery.camera import Look, number, use_threads
from carla_lite.scenery.paint import Image
from carla_lite.scenery.people import TAG_PEDESTRIAN, People
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.strokes import Drawn, Moving
from carla_lite.scenery.vehicle_meshes import Part
from carla_lite.scenery.vista import Float32

FARTHEST_M = 1000.0
TAG_RIDER = 13
LAST_THING = 0xFFFF
"""Static things are counted down from it; actors have their ids, which begin at 1."""
LABELS = 32
"""The first numbers are for sky and ground, by CityObjectLabel."""
# For planes that are seen edge-on (m).
_THIN = 1e-9


@dataclass(frozen=True)
class Before:
    """Poses of a camera and of moving things at its last picture; by the ids of actors."""

    view: View
    poses: Mapping[int, Pose]


class Surfaces:
    """The surfaces of one view. Each method returns a new array with one value per pixel."""

    def __init__(self, look: Look) -> None:
        self._look = look
        lens = look.view.lens
        use_threads(lens)
        self._faces = _Faces(look)
        labels: Image = np.empty((lens.height, lens.width), np.uint8)
        look.backdrop.label(labels, look.scene.labels, look.view)
        numbers = labels.astype(np.int32)
        number(numbers, look.strokes, self._faces.wanted, LABELS)
        self._numbers = numbers.astype(np.intp)

    def tags(self) -> Image:
        """Return (height, width, 4): CityObjectLabels in the red channel of BGRA."""
        return self._drawn(np.zeros_like(self._faces.tags))

    def instances(self) -> Image:
        """Return (height, width, 4): labels, with each thing's number in green (low byte) and blue (high byte)."""
        things = self._faces.things
        return self._drawn((things & 0xFF) << 8 | things >> 8 & 0xFF)

    def _drawn(self, green_and_blue: NDArray[np.intp]) -> Image:
        table = np.empty(LABELS + len(self._faces.tags), "<u4")
        table[:LABELS] = np.arange(LABELS) << 16
        table[LABELS:] = self._faces.tags << 16 | green_and_blue
        table |= 0xFF000000
        return self._looked_up(table).view(np.uint8).reshape(*self._numbers.shape, 4)

    def normals(self) -> Float32:
        """Return (height, width, 3) unit vectors in the world's frame, towards the camera; 0 for the sky."""
        table = np.zeros((LABELS + len(self._faces.tags), 3), np.float32)
        table[:LABELS, 2] = 1.0
        table[TAG_SKY] = 0.0
        table[LABELS:] = self._faces.planes.towards()
        normals: Float32 = self._looked_up(table)
        return normals

    @cached_property
    def metres(self) -> Float32:
        """(height, width) distance along the camera's axis, at most 1000 m; not to be written to."""
        view, planes = self._look.view, self._faces.planes
        back, above_m = np.linalg.inv(view.matrix), self._look.backdrop.above_m
        # Factors of u, v and 1 for 1 / depth, and its limits.
        rows = np.empty((5, LABELS + len(self._faces.tags)))
        rows[:3, :LABELS] = -back[2, :, None] / above_m
        rows[3:, :LABELS] = ((1.0 / GROUND_END_M,), (1.0 / NEAR_M,))
        rows[:, TAG_SKY] = 0.0, 0.0, 0.0, 0.5 / FARTHEST_M, 0.5 / FARTHEST_M
        rows[:3, LABELS:] = planes.in_image()
        rows[3:, LABELS:] = 1.0 / np.maximum(planes.reach[::-1], NEAR_M)
        # Relative to the image's centre, where single precision is finest.
        rows[2] += rows[0] * view.u + rows[1] * view.v
        by_u, by_v, by_1, least, most = rows.astype(np.float32)
        # One array for all steps: data outside the processor's cache takes longer than its sums.
        value: Float32 = self._looked_up(by_u)
        value *= np.arange(view.lens.width, dtype=np.float32) - np.float32(view.u)
        part = self._looked_up(by_v)
        part *= np.arange(view.lens.height, dtype=np.float32)[:, None] - np.float32(view.v)
        value += part
        value += self._looked_up(by_1, part)
        # A pixel of which a polygon covers less than half may see its plane from behind.
        np.maximum(value, self._looked_up(least, part), out=value)
        np.minimum(value, self._looked_up(most, part), out=value)
        np.divide(np.float32(1.0), value, out=value)
        np.minimum(value, np.float32(FARTHEST_M), out=value)
        return value

    def flow(self, before: Before) -> Float32:
        """Return (height, width, 2) the motion of each point since then: half widths to the right, half heights up, -2
        to 2.

        A thing that wasn't in view then counts as static.
        """
        view, lens, things = self._look.view, self._look.view.lens, self._faces.things
        rows = np.empty((3, 4, LABELS + len(things)))
        rows[:] = _steps(before.view, view, Pose(0.0, 0.0, 0.0), Pose(0.0, 0.0, 0.0))[..., None]
        rows[:, 3, TAG_SKY] = 0.0  # infinitely far away: it only turns
        for actor, pose in self._look.moving.poses().items():
            if actor in before.poses:
                of = LABELS + np.flatnonzero(things == actor)
                rows[..., of] = _steps(before.view, view, before.poses[actor], pose)[..., None]
        across = np.arange(lens.width, dtype=np.float32)
        down = np.arange(lens.height, dtype=np.float32)[:, None]
        was: list[Float32] = []
        for part in rows.astype(np.float32):
            by_u, by_v, by_depth, by_1 = (self._looked_up(row) for row in part)
            was.append((by_u * across + by_v * down + by_depth) * self.metres + by_1)
        depth = np.maximum(was[2], np.float32(NEAR_M))
        moved = np.stack(
            [2.0 / lens.width * (across - was[0] / depth), 2.0 / lens.height * (was[1] / depth - down)], axis=2
        )
        flow: Float32 = np.clip(moved, -2.0, 2.0).astype(np.float32)
        return flow

    def _looked_up(self, table: NDArray[Any], into: NDArray[Any] | None = None) -> NDArray[Any]:
        # No number is outside; this mode is the fastest.
        return table.take(self._numbers, axis=0, mode="wrap", out=into)


def _steps(was: View, now: View, pose_was: Pose, pose_now: Pose) -> FloatArray:
    """Return (3, 4) matrices from (u, v, 1) × depth and 1 to u × depth, v × depth and depth in the view before.

    They are for points fixed to a pose.
    """
    turn = np.array(pose_was.axes()).T @ np.array(pose_now.axes())
    at_now, at_was = (np.array((pose.x, pose.y, pose.z)) for pose in (pose_now, pose_was))
    shift = turn @ (now.position - at_now) + at_was - was.position
    steps: FloatArray = was.matrix @ np.column_stack([turn @ np.linalg.inv(now.matrix), shift])
    return steps


class _Faces:
    """The k filled faces, in order: the thing of each and (computed later, if at all) its plane."""

    def __init__(self, look: Look) -> None:
        moving, polygons = look.moving, len(look.vista.keys)
        panels = 0 if moving.group is None else len(moving.group.owners)
        people = 0 if moving.flat is None else len(moving.flat.ids)
        # For every possible face; the last entry is for no face.
        tags, things = np.zeros(polygons + panels + people + 1, np.intp), np.zeros(1, np.intp)
        tags[:polygons] = look.vista.tags
        parts = [LAST_THING - look.vista.boxes]
        if moving.group is not None:
            own_tags, own_ids = _tags_and_ids(moving.solid)
            of = tags[polygons : polygons + panels]
            np.take(own_tags, moving.group.owners, out=of)
            of[moving.group.parts == Part.RIDER] = TAG_RIDER
            of[moving.group.parts >= Part.SHADOW] = 0
            parts.append(own_ids.take(moving.group.owners))
        if moving.flat is not None:
            tags[polygons + panels : -1] = TAG_PEDESTRIAN
            parts.append(moving.flat.ids)
        things = np.concatenate([*parts, things])
        filled = np.array([stroke[3] for stroke in look.strokes], np.intp)
        shown = tags.take(filled)
        self.wanted: list[int] = shown.tolist()
        """For each stroke: 0 if it isn't filled."""
        self._look, self._polygons, self._panels = look, polygons, panels
        self._filled = filled[shown > 0]
        self.tags, self.things = tags.take(self._filled), things.take(self._filled)

    @cached_property
    def planes(self) -> _Planes:
        """Their planes."""
        return _Planes(self._look, self._filled, self._polygons, self._panels)


def _tags_and_ids(things: Sequence[Drawn]) -> NDArray[np.intp]:
    """Return (2, n) labels and ids."""
    found: NDArray[np.intp] = np.array([(thing.tag, thing.actor) for thing in things], np.intp).T
    return found


class _Planes:
    """Planes of k faces: normals, distances before the eye, and depths of their corners."""

    def __init__(self, look: Look, faces: NDArray[np.intp], polygons: int, panels: int) -> None:
        self._view = look.view
        self._seen, self.ahead_m = np.empty((3, len(faces))), np.empty(len(faces))
        """(3, k) the normals, multiplied by the view's matrix like points."""
        self.reach = np.empty((2, len(faces)))
        """(2, k) the smallest and the largest depth (m)."""
        still, flat = faces < polygons, faces >= polygons + panels
        if still.any():
            self._still(look, still.nonzero()[0], faces[still])
        if look.moving.group is not None:
            solid = ~(still | flat)
            self._panels(look.moving, solid.nonzero()[0], faces[solid] - polygons)
        if look.moving.flat is not None:
            self._people(look.moving.flat, look, flat.nonzero()[0], faces[flat] - polygons - panels)
        self.ahead_m[np.abs(self.ahead_m) < _THIN] = _THIN

    def _still(self, look: Look, at: NDArray[np.intp], polygons: NDArray[np.intp]) -> None:
        vista, matrix = look.vista, look.view.matrix
        eye = look.view.position - vista.origin
        planes = vista.planes.take(polygons, 1)
        self._seen[:, at] = matrix @ planes[:3]
        self.ahead_m[at] = planes[3] - eye @ planes[:3]
        depths = (matrix[2].astype(np.float32) @ vista.points[:3]).reshape(-1, len(vista.keys)) - matrix[2] @ eye
        self.reach[0, at] = np.minimum.reduce(depths, 0).take(polygons)
        self.reach[1, at] = np.maximum.reduce(depths, 0).take(polygons)

    def _panels(self, moving: Moving, at: NDArray[np.intp], panels: NDArray[np.intp]) -> None:
        group, products, places = moving.group, moving.products, moving.places
        assert group is not None
        assert products is not None
        assert places is not None
        rows, owners = group.panels.take(panels), group.owners.take(panels)
        offsets = np.concatenate([mesh.rows[mesh.count :, 3] for mesh in group.meshes]).take(panels)
        products_of = products.take(rows, 1)
        self._seen[:, at] = products_of[:3] - offsets * places.take(owners, 1)
        self.ahead_m[at] = -products_of[3]
        if len(panels):
            bounds = group.bounds.take(panels, 0).ravel()
            self.reach[0, at] = np.minimum.reduceat(products[2], bounds)[::2]
            self.reach[1, at] = np.maximum.reduceat(products[2], bounds)[::2]

    def _people(self, flat: People, look: Look, at: NDArray[np.intp], people: NDArray[np.intp]) -> None:
        forward = look.view.matrix[2]
        depths = ((flat.places.T - look.view.position) @ forward)[people]
        self._seen[:, at] = (look.view.matrix @ forward)[:, None]
        self.ahead_m[at], self.reach[:, at] = depths, depths

    def in_image(self) -> FloatArray:
        """Return (3, k) factors of u, v and 1 for 1 / depth."""
        matrix = self._view.matrix
        rows: FloatArray = np.linalg.inv(matrix @ matrix.T) @ self._seen / self.ahead_m
        return rows

    def towards(self) -> FloatArray:
        """Return (k, 3) the unit normals in the world's frame, towards the eye."""
        normals = np.linalg.inv(self._view.matrix) @ np.where(self.ahead_m > 0.0, -self._seen, self._seen)
        turned: FloatArray = normals.T
        return turned
