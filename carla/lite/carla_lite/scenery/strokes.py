"""What is drawn over the backdrop, as flat polygons in the image with a key that orders them: still things and cars.

Owns projection, culling and the part before the eye. Never touches the image: ``camera`` fills the strokes, and another
kind of camera could fill the same ones with tags or depths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.meshes import StaticMesh, windows
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.vehicle_meshes import Shape, vehicle_mesh
from carla_lite.scenery.vista import FARTHEST_M, IN_FRONT, Float32, Vista, Walls

SUB = 4  # fractional bits of polygon coordinates
SMALLEST_CAR_PX = 1.5
FINE_CAR_PX = 16.0
WINDOWS_FROM_FOCAL = 150.0
GLASS = (112.0, 96.0, 82.0)
LIMIT_PX = 1e5
_BOUNDS = np.array((0.0, 0.0, NEAR_M, 0.0, 0.0), np.float32)

Polygon = NDArray[np.int32]
Stroke = tuple[float, Polygon, Sequence[float]]
"""A key (larger ones are drawn first), a convex polygon (n, 2) or several quads (m, 4, 2), and the BGR colour."""


@dataclass(slots=True)  # as Pose
class BoxActor:
    """Something that moves: ``pose`` of the box's centre, half sizes in metres, BGR colour, CityObjectLabel, shape."""

    pose: Pose
    extent: tuple[float, float, float]
    colour: tuple[int, int, int]
    tag: int
    shape: Shape = Shape.BOX


def still_strokes(vista: Vista, mesh: StaticMesh, view: View) -> list[Stroke]:
    """Return the polygons of a vista that are in the image, from far to near."""
    if not vista.parts:
        return []
    # Beside u, v and depth, how far inside the right and lower edge: a polygon is out of the image when all its corners
    # are beyond one edge, whether before the eye or behind it.
    planes = (
        np.array(((1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, view.lens.width), (0, -1, view.lens.height))) @ view.matrix
    )
    seen = vista.points @ planes.T.astype(np.float32) + (planes @ (vista.origin - view.position)).astype(np.float32)
    shown = np.flatnonzero((np.maximum.reduceat(seen, vista.starts) > _BOUNDS).all(axis=1))
    depth = seen[:, 2]
    ahead = np.minimum.reduceat(depth, vista.starts)[shown] > NEAR_M
    pixels = _rounded(seen[:, :2] / np.maximum(depth, np.float32(NEAR_M))[:, None])
    strokes: list[Stroke] = []
    panes: list[tuple[int, FloatArray]] = []
    near = view.lens.focal >= WINDOWS_FROM_FOCAL
    for i, whole in zip(shown.tolist(), ahead.tolist(), strict=True):
        part = vista.parts[i]
        outline = pixels[part] if whole else _clipped(seen[part])
        if outline is None:
            continue
        strokes.append((vista.keys[i], outline, vista.colours[i]))
        wall = vista.windowed[i]
        if wall is not None and near:
            panes.append((len(strokes), windows(mesh.boxes[wall[0]])[wall[1]]))
    return _with_windows(strokes, panes, view) if panes else strokes


def _with_windows(strokes: list[Stroke], panes: Sequence[tuple[int, FloatArray]], view: View) -> list[Stroke]:
    """Return the strokes with windows in them: each pane is a place in the list and the quads (m, 4, 3) that go there."""
    quads = view.project(np.concatenate([quads for _, quads in panes]))
    before = quads[..., 2].min(axis=1) > NEAR_M
    pixels, whole = _pixels(quads), bool(before.all())
    complete: list[Stroke] = []
    done = first = 0
    for place, walls in panes:
        complete += strokes[done:place]
        key, _, colour = strokes[place - 1]
        part = pixels[first : first + len(walls)]
        if not whole:
            part = part[before[first : first + len(walls)]]
        if len(part):
            complete.append((key, part, [0.35 * own + 0.65 * glass for own, glass in zip(colour, GLASS, strict=True)]))
        done, first = place, first + len(walls)
    return complete + strokes[done:]


def actor_strokes(actors: Sequence[BoxActor], walls: Walls, view: View, daylight: Daylight) -> list[Stroke]:
    """Return the panels of what moves and is in view."""
    chosen = _in_view(actors, view)
    if not chosen:
        return []
    places = np.array([(actor.pose.x, actor.pose.y, actor.pose.z) for _, actor in chosen])
    behind = walls.hide(view.position, places).tolist()
    focal = view.lens.focal
    meshes = [
        vehicle_mesh(actor.shape, actor.extent, actor.colour, focal * actor.extent[2] >= FINE_CAR_PX * distance)
        for distance, actor in chosen
    ]
    # Few calls on long arrays, since a call costs more than its sums: one product an actor gives its points in the
    # image and how its panels face the eye and the sun; the rest is done for all panels together.
    axes = np.array([actor.pose.axes() for _, actor in chosen])
    away = view.position - places
    turns = np.zeros((len(chosen), 4, 5))
    turns[:, :3, :3] = axes @ view.matrix.T
    turns[:, :3, 3] = (axes @ away[..., None])[..., 0]
    turns[:, :3, 4] = axes @ daylight.sun
    turns[:, 3, :3] = -away @ view.matrix.T
    turns[:, 3, 3] = 1.0
    products = [mesh.rows @ turn for mesh, turn in zip(meshes, turns, strict=True)]
    seen = np.concatenate([product[: mesh.count, :3] for mesh, product in zip(meshes, products, strict=True)])
    sides = np.concatenate([product[mesh.count :, 3:] for mesh, product in zip(meshes, products, strict=True)])
    facing = np.flatnonzero(sides[:, 0] > 0.0)
    # Of each panel: its first point, its actor's key, the share of its own colour, and the haze.
    of, first = [], 0
    for (distance, _), wall, mesh in zip(chosen, behind, meshes, strict=True):
        share = daylight.haze_share(distance)
        key = wall + 1e-2 if wall >= 0.0 else distance + IN_FRONT
        of.append((first, key, 1.0 - share, *(share * tone for tone in daylight.haze_bgr)))
        first += mesh.count
    own = np.repeat(np.array(of), [len(mesh.traits) for mesh in meshes], axis=0)[facing]
    traits = np.concatenate([mesh.traits for mesh in meshes])[facing]
    light = daylight.shade(sides[facing, 1])
    light[traits[:, 3] > 0.0] = 1.0
    tones = (np.minimum(traits[:, :3] * light, 255.0) * own[:, 2:3] + own[:, 3:]).tolist()
    spans = (traits[:, 4:] + own[:, :1]).astype(np.intp).tolist()
    pixels, whole = _pixels(seen), bool(seen[:, 2].min() > NEAR_M)
    strokes: list[Stroke] = []
    for (start, end), key, tone in zip(spans, own[:, 1].tolist(), tones, strict=True):
        outline = pixels[start:end] if whole else _clipped(seen[start:end])
        if outline is not None:
            strokes.append((key, outline, tone))
    return strokes


def _in_view(actors: Sequence[BoxActor], view: View) -> list[tuple[float, BoxActor]]:
    """Return the actors that may be in the image, and their distances (m)."""
    px, py, pz = view.position.tolist()
    (fx, fy, fz), (rx, ry, rz), _ = view.axes.tolist()
    tangent = 0.5 * view.lens.width / view.lens.focal
    slack = math.hypot(1.0, tangent)
    farthest = min(FARTHEST_M, view.lens.focal / SMALLEST_CAR_PX * 1.5)
    chosen = []
    for actor in actors:
        pose = actor.pose
        dx, dy, dz = pose.x - px, pose.y - py, pose.z - pz
        depth = fx * dx + fy * dy + fz * dz
        reach = actor.extent[0] + actor.extent[1]
        if -reach < depth < farthest and abs(rx * dx + ry * dy + rz * dz) < depth * tangent + slack * reach:
            chosen.append((math.sqrt(dx * dx + dy * dy + dz * dz), actor))
    return chosen


def _pixels(seen: FloatArray) -> Polygon:
    """Return drawing coordinates (..., 2) of projected points (..., 3) in front of the eye."""
    return _rounded(seen[..., :2] / np.maximum(seen[..., 2:], NEAR_M))


def _rounded(places: FloatArray | Float32) -> Polygon:
    # In C order whatever the input's: OpenCV takes no other.
    cut = np.minimum(np.maximum(places, -LIMIT_PX), LIMIT_PX)
    rounded: Polygon = np.rint(cut * (1 << SUB)).astype(np.int32, order="C")
    return rounded


def _clipped(seen: FloatArray | Float32) -> Polygon | None:
    """Return the drawing coordinates of the part of a polygon (n, 3) in front of the eye, or None."""
    kept = []
    u, v, depth = seen[-1, :3].tolist()
    for next_u, next_v, next_depth in seen[:, :3].tolist():
        if (depth > NEAR_M) != (next_depth > NEAR_M):
            share = (NEAR_M - depth) / (next_depth - depth)
            kept.append((u + share * (next_u - u), v + share * (next_v - v), NEAR_M))
        if next_depth > NEAR_M:
            kept.append((next_u, next_v, next_depth))
        u, v, depth = next_u, next_v, next_depth
    return _pixels(np.array(kept)) if len(kept) >= 3 else None
