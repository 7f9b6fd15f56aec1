"""What each pixel of a picture shows beside its colour: which thing, how far away, and which way it is turned.

Owns the numbers that the strokes of a picture are filled with, and the tables behind them. As the strokes are those
that the colours are filled with, silhouettes agree. Left out is what only shines (glare, the light of lamps, rain) and
what clients draw; a vehicle's shadow is ground. Knows no layout of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.backdrop import GROUND_END_M, TAG_SKY
from carla_lite.scenery.camera import Look, number, use_threads
from carla_lite.scenery.paint import Image
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.strokes import Drawn
from carla_lite.scenery.vehicle_meshes import Part
from carla_lite.scenery.vista import Float32

FARTHEST_M = 1000.0
TAG_RIDER = 13
LAST_THING = 0xFFFF
"""Things that stand still are counted down from it; actors have their ids, which begin at 1."""
LABELS = 32
"""The first numbers are sky and ground, by their CityObjectLabel."""
_COLUMNS = 1024
# Of planes that are seen edge-on (m).
_THIN = 1e-9


@dataclass(frozen=True)
class Before:
    """Where a camera and what moves were when it looked last; poses by the ids of actors."""

    view: View
    poses: Mapping[int, Pose]


class Surfaces:
    """The surfaces of one look. Each method returns a new array with a value a pixel."""

    def __init__(self, look: Look) -> None:
        self._look = look
        use_threads(look.view.lens)
        faces = np.array([stroke[3] for stroke in look.strokes], np.intp)
        tags, things = _named(look, faces)
        self._faces, self._tags, self._things = faces[tags > 0], tags[tags > 0], things[tags > 0]
        lens = look.view.lens
        labels: Image = np.empty((lens.height, lens.width), np.uint8)
        look.backdrop.label(labels, look.scene.labels, look.view)
        # Column and row in a table of each pixel's number: so OpenCV looks values up as quickly as it warps images.
        self._pixels = np.zeros((lens.height, lens.width, 2), np.int16)
        self._pixels[..., 0] = labels
        number(self._pixels, look.strokes, tags.tolist(), LABELS, _COLUMNS)

    def tags(self) -> Image:
        """Return (height, width, 4): CityObjectLabels in the red channel of BGRA."""
        return self._drawn(np.zeros_like(self._tags), np.zeros_like(self._tags))

    def instances(self) -> Image:
        """Return (height, width, 4): the same with each thing's number in green (low byte) and blue (high byte)."""
        return self._drawn(self._things & 0xFF, self._things >> 8 & 0xFF)

    def _drawn(self, green: NDArray[np.intp], blue: NDArray[np.intp]) -> Image:
        table = _table(LABELS + len(self._tags), 4, np.uint8)
        table[:, 3] = 255
        table[:LABELS, 2] = np.arange(LABELS)
        table[LABELS : LABELS + len(self._tags), 0] = blue
        table[LABELS : LABELS + len(self._tags), 1] = green
        table[LABELS : LABELS + len(self._tags), 2] = self._tags
        image: Image = self._looked_up(table)
        return image

    def normals(self) -> Float32:
        """Return (height, width, 3) unit vectors of the world's frame, towards the camera; 0 of the sky."""
        table = _table(LABELS + len(self._tags), 3, np.float32)
        table[:LABELS, 2] = 1.0
        table[TAG_SKY] = 0.0
        table[LABELS : LABELS + len(self._tags)] = self._planes.towards()
        normals: Float32 = self._looked_up(table)
        return normals

    @cached_property
    def metres(self) -> Float32:
        """(height, width) how far away everything is along the camera's axis, at most 1000 m; not to be written to."""
        view, planes, size = self._look.view, self._planes, len(self._tags)
        back, above_m = np.linalg.inv(view.matrix), self._look.backdrop.above_m
        rows = np.empty((LABELS + size, 3))
        rows[:LABELS] = -back[2] / above_m
        rows[TAG_SKY] = 0.0
        rows[LABELS:] = planes.in_image(back)
        # By distances from the middle of the image, where single precision is finest.
        rows[:, 2] += rows[:, 0] * view.u + rows[:, 1] * view.v
        limits = np.empty((LABELS + size, 2))
        limits[:LABELS] = 1.0 / GROUND_END_M, 1.0 / NEAR_M
        limits[TAG_SKY] = 0.5 / FARTHEST_M
        limits[LABELS:] = 1.0 / np.maximum(planes.reach[:, ::-1], NEAR_M)
        table, bounds = _table(LABELS + size, 4, np.float32), _table(LABELS + size, 2, np.float32)
        table[: LABELS + size, :3], bounds[: LABELS + size] = rows, limits
        plane, bound = self._looked_up(table), self._looked_up(bounds)
        across = np.arange(view.lens.width, dtype=np.float32) - np.float32(view.u)
        down = np.arange(view.lens.height, dtype=np.float32)[:, None] - np.float32(view.v)
        inverse = plane[..., 0] * across + plane[..., 1] * down + plane[..., 2]
        # Of pixels that a polygon covers by less than a half its plane may be seen from behind.
        np.clip(inverse, bound[..., 0], bound[..., 1], out=inverse)
        metres: Float32 = np.minimum(np.float32(1.0) / inverse, np.float32(FARTHEST_M))
        return metres

    def flow(self, before: Before) -> Float32:
        """Return (height, width, 2) how far each point of the picture has moved since then, in half widths to the right
        and half heights up, from -2 to 2.

        What wasn't seen then counts as standing still.
        """
        view, lens = self._look.view, self._look.view.lens
        rows = np.empty((LABELS + len(self._tags), 3, 4))
        rows[:] = _steps(before.view, view, Pose(0.0, 0.0, 0.0), Pose(0.0, 0.0, 0.0))
        rows[TAG_SKY, :, 3] = 0.0  # endlessly far away: it only turns
        for figure in (*self._look.moving.solid, *self._look.moving.flat):
            if figure.actor in before.poses:
                rows[LABELS:][self._things == figure.actor] = _steps(
                    before.view, view, before.poses[figure.actor], figure.pose
                )
        across = np.arange(lens.width, dtype=np.float32)
        down = np.arange(lens.height, dtype=np.float32)[:, None]
        was: list[Float32] = []
        for part in range(3):
            table = _table(len(rows), 4, np.float32)
            table[: len(rows)] = rows[:, part]
            by = self._looked_up(table)
            was.append((by[..., 0] * across + by[..., 1] * down + by[..., 2]) * self.metres + by[..., 3])
        depth = np.maximum(was[2], np.float32(NEAR_M))
        moved = np.stack(
            [2.0 / lens.width * (across - was[0] / depth), 2.0 / lens.height * (was[1] / depth - down)], axis=2
        )
        flow: Float32 = np.clip(moved, -2.0, 2.0).astype(np.float32)
        return flow

    @cached_property
    def _planes(self) -> _Planes:
        return _Planes(self._look, self._faces)

    def _looked_up(self, table: NDArray[Any]) -> NDArray[Any]:
        use_threads(self._look.view.lens)
        rows = table.reshape(-1, _COLUMNS, table.shape[1])
        return np.asarray(cv2.remap(rows, self._pixels, None, cv2.INTER_NEAREST))


def _steps(was: View, now: View, pose_was: Pose, pose_now: Pose) -> FloatArray:
    """Return (3, 4) what (u, v, 1) × depth and 1 of a point fixed to a pose are multiplied by for its u × depth,
    v × depth and depth in the view before."""
    turn = np.array(pose_was.axes()).T @ np.array(pose_now.axes())
    at_now, at_was = (np.array((pose.x, pose.y, pose.z)) for pose in (pose_now, pose_was))
    shift = turn @ (now.position - at_now) + at_was - was.position
    steps: FloatArray = was.matrix @ np.column_stack([turn @ np.linalg.inv(now.matrix), shift])
    return steps


def _table(size: int, channels: int, kind: type[Any]) -> NDArray[Any]:
    """Return zeros (at least ``size``, channels) that fill whole rows."""
    return np.zeros((-(-size // _COLUMNS) * _COLUMNS, channels), kind)


class _Sorts:
    """Which of some faces are polygons of the vista, panels of what moves, and people who are far away."""

    def __init__(self, look: Look, faces: NDArray[np.intp]) -> None:
        still = len(look.vista.keys)
        panels = still + (0 if look.moving.group is None else len(look.moving.group.owners))
        self.still = np.flatnonzero((faces >= 0) & (faces < still))
        self.panel = np.flatnonzero((faces >= still) & (faces < panels))
        self.flat = np.flatnonzero(faces >= panels)
        self.polygons, self.panels = faces[self.still], faces[self.panel] - still
        self.people = faces[self.flat] - panels


def _named(look: Look, faces: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return CityObjectLabel and number of what each face is of; the label of what isn't drawn is 0."""
    sorts, moving = _Sorts(look, faces), look.moving
    tags, things = np.zeros_like(faces), np.zeros_like(faces)
    box = look.vista.boxes[sorts.polygons]
    tags[sorts.still] = np.where(box >= 0, look.scene.mesh.tags[box], 0) if len(box) else 0
    things[sorts.still] = LAST_THING - box
    if moving.group is not None:
        own_tags, own_ids = _tags_and_ids(moving.solid)
        owner, part = moving.group.owners[sorts.panels], moving.group.parts[sorts.panels]
        tags[sorts.panel] = np.where(part == Part.RIDER, TAG_RIDER, np.where(part == Part.SHADOW, 0, own_tags[owner]))
        things[sorts.panel] = own_ids[owner]
    if len(sorts.flat):
        own_tags, own_ids = _tags_and_ids(moving.flat)
        tags[sorts.flat], things[sorts.flat] = own_tags[sorts.people], own_ids[sorts.people]
    return tags, things


def _tags_and_ids(things: Sequence[Drawn]) -> NDArray[np.intp]:
    return np.array([(thing.tag, thing.actor) for thing in things], np.intp).T


class _Planes:
    """The planes of k faces: normals in the world's frame, how far before the eye, and the depths of their corners."""

    def __init__(self, look: Look, faces: NDArray[np.intp]) -> None:
        self._view = look.view
        self.normals, self.ahead_m = np.zeros((len(faces), 3)), np.zeros(len(faces))
        self.reach = np.zeros((len(faces), 2))
        """(k, 2) the nearest and the farthest depth (m)."""
        sorts = _Sorts(look, faces)
        if len(sorts.still):
            self._still(look, sorts)
        if look.moving.group is not None:
            self._panels(look, sorts)
        if len(sorts.flat):
            self._people(look, sorts)
        self.ahead_m[np.abs(self.ahead_m) < _THIN] = _THIN

    def _still(self, look: Look, sorts: _Sorts) -> None:
        vista, at = look.vista, sorts.still
        eye, forward = look.view.position - vista.origin, np.array(look.view.axes[0])
        planes = vista.planes[sorts.polygons]
        self.normals[at] = planes[:, :3]
        self.ahead_m[at] = planes[:, 3] - planes[:, :3] @ eye
        corners = vista.points.reshape(4, -1, len(vista.keys))[:3].take(sorts.polygons, axis=2)
        depths = np.tensordot(forward, corners, 1) - forward @ eye
        self.reach[at, 0], self.reach[at, 1] = depths.min(axis=0), depths.max(axis=0)

    def _panels(self, look: Look, sorts: _Sorts) -> None:
        group, products, at = look.moving.group, look.moving.products, sorts.panel
        assert group is not None
        assert products is not None
        turned = [
            mesh.rows[mesh.count :, :3] @ np.array(thing.pose.axes())
            for mesh, thing in zip(group.meshes, look.moving.solid, strict=True)
        ]
        self.normals[at] = np.concatenate(turned)[sorts.panels]
        self.ahead_m[at] = -products[3].take(group.panels.take(sorts.panels))
        bounds = group.bounds[sorts.panels].ravel()
        if len(bounds):
            self.reach[at, 0] = np.minimum.reduceat(products[2], bounds)[::2]
            self.reach[at, 1] = np.maximum.reduceat(products[2], bounds)[::2]

    def _people(self, look: Look, sorts: _Sorts) -> None:
        forward = np.array(look.view.axes[0])
        places = np.array([(one.pose.x, one.pose.y, one.pose.z) for one in look.moving.flat])
        depths = ((places - look.view.position) @ forward)[sorts.people]
        self.normals[sorts.flat], self.ahead_m[sorts.flat] = forward, depths
        self.reach[sorts.flat] = depths[:, None]

    def in_image(self, back: FloatArray) -> FloatArray:
        """Return (k, 3) what u, v and 1 are multiplied by for 1 / depth; ``back`` inverts the view's matrix."""
        rows: FloatArray = self.normals @ back / self.ahead_m[:, None]
        return rows

    def towards(self) -> FloatArray:
        """Return (k, 3) the normals, towards the eye."""
        turned: FloatArray = np.where(self.ahead_m[:, None] > 0.0, -self.normals, self.normals)
        return turned
