"""What is drawn over the backdrop, as flat polygons in the image with a key that orders them: still things and cars.

Owns projection, culling and the part before the eye. Never touches the image: ``camera`` fills the strokes, and another
kind of camera could fill the same ones with tags or depths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.meshes import StaticMesh, shade, windows
from carla_lite.scenery.people import Person
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.sign_faces import SignFaces
from carla_lite.scenery.sky import hazed, hazed_once
from carla_lite.scenery.vehicle_meshes import Shape, VehicleMesh, vehicle_mesh
from carla_lite.scenery.vista import FARTHEST_M, IN_FRONT, Float32, Vista, Walls

SUB = 4  # fractional bits of polygon coordinates
SMALLEST_CAR_PX = 1.5
FINE_CAR_PX = 16.0
FLAT_PERSON_PX = 14.0  # half the height
WINDOWS_FROM_FOCAL = 150.0
GLASS = np.array((112.0, 96.0, 82.0))
LIMIT_PX = 1e5
_BOUNDS = np.array((0.0, 0.0, NEAR_M, 0.0, 0.0), np.float32)

Polygon = NDArray[np.int32]
Stroke = tuple[float, Polygon, Sequence[float]]
"""A key (larger ones are drawn first), a convex polygon (n, 2) or several quads (m, 4, 2), and the BGR colour."""


@dataclass(frozen=True, slots=True)
class BoxActor:
    """Something that moves: ``pose`` of the box's centre, half sizes in metres, BGR colour, CityObjectLabel, shape."""

    pose: Pose
    extent: tuple[float, float, float]
    colour: tuple[int, int, int]
    tag: int
    shape: Shape = Shape.BOX

    def mesh(self, _away: FloatArray) -> VehicleMesh:
        """Return its panels, whichever side they are seen from."""
        return vehicle_mesh(self.shape, self.extent, self.colour)


Drawn: TypeAlias = BoxActor | Person


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
    for i, whole in zip(shown.tolist(), ahead.tolist(), strict=True):
        part = vista.parts[i]
        outline = pixels[part] if whole else _clipped(seen[part])
        if outline is None:
            continue
        strokes.append((vista.keys[i], outline, vista.colours[i]))
        wall = vista.windowed[i]
        if wall is not None and view.lens.focal >= WINDOWS_FROM_FOCAL:
            quads = view.project(windows(mesh.boxes[wall[0]])[wall[1]])
            quads = quads[quads[..., 2].min(axis=1) > NEAR_M]
            if len(quads):
                glass = 0.35 * np.array(vista.colours[i]) + 0.65 * GLASS
                strokes.append((vista.keys[i], _pixels(quads), glass.tolist()))
    return strokes


def actor_strokes(actors: Sequence[Drawn], walls: Walls, view: View) -> list[Stroke]:
    """Return the panels of what moves and is in view."""
    px, py, pz = view.position.tolist()
    fx, fy, fz = view.axes[0].tolist()
    rx, ry, rz = view.axes[1].tolist()
    tangent = 0.5 * view.lens.width / view.lens.focal
    slack = math.hypot(1.0, tangent)
    farthest = min(FARTHEST_M, view.lens.focal / SMALLEST_CAR_PX * 1.5)
    chosen = []
    for actor in actors:
        dx, dy, dz = actor.pose.x - px, actor.pose.y - py, actor.pose.z - pz
        depth = fx * dx + fy * dy + fz * dz
        reach = actor.extent[0] + actor.extent[1]
        if -reach < depth < farthest and abs(rx * dx + ry * dy + rz * dz) < depth * tangent + slack * reach:
            chosen.append((math.sqrt(dx * dx + dy * dy + dz * dz), actor))
    if not chosen:
        return []
    behind = walls.hide(view.position, np.array([(actor.pose.x, actor.pose.y) for _, actor in chosen]))
    strokes: list[Stroke] = []
    for (distance, actor), wall in zip(chosen, behind.tolist(), strict=True):
        key = wall + 1e-2 if wall >= 0.0 else distance + IN_FRONT
        strokes.extend(_panels(actor, distance, key, view))
    return strokes


def sign_strokes(signs: SignFaces, walls: Walls, view: View) -> list[Stroke]:
    """Return the panels of heads and plates that are in view: all signs in one go, for they stand still."""
    if not signs.parts:
        return []
    towards = signs.centres - view.position
    distance = np.sqrt(np.square(towards).sum(axis=1))
    tangent = 0.5 * view.lens.width / view.lens.focal
    depth, aside = towards @ view.axes[0], np.abs(towards @ view.axes[1])
    near = (depth > 0.0) & (distance < min(FARTHEST_M, view.lens.focal)) & (aside < depth * tangent + 1.0)
    if not near.any():
        return []
    detailed = view.lens.focal * signs.half_heights >= FINE_CAR_PX * distance
    shown = near[signs.owners] & (signs.normals @ view.position > signs.offsets)
    panels = np.flatnonzero(shown & (detailed[signs.owners] | ~signs.fine))
    owners = signs.owners[panels]
    behind = np.full(len(near), -1.0)
    behind[near] = walls.hide(view.position, signs.centres[near])
    keys = np.where(behind >= 0.0, behind + 1e-2, distance + IN_FRONT)[owners].tolist()
    light = np.where(signs.glowing[panels], 1.0, shade(signs.normals[panels]))
    tones = hazed(np.minimum(signs.colours[panels] * light[:, None], 255.0), distance[owners]).tolist()
    seen = view.project(signs.points)
    pixels = _pixels(seen)
    strokes: list[Stroke] = []
    for panel, key, tone in zip(panels.tolist(), keys, tones, strict=True):
        part = signs.parts[panel]
        outline = pixels[part] if seen[part, 2].min() > NEAR_M else _clipped(seen[part])
        if outline is not None:
            strokes.append((key, outline, tone))
    return strokes


def _panels(actor: Drawn, distance: float, key: float, view: View) -> list[Stroke]:
    axes = actor.pose.axes()
    centre = np.array((actor.pose.x, actor.pose.y, actor.pose.z))
    away = view.position - centre
    if isinstance(actor, Person) and view.lens.focal * actor.extent[2] < FLAT_PERSON_PX * distance:
        return _silhouette(actor, distance, key, view)
    mesh = actor.mesh(axes @ away)
    facing = mesh.normals @ (axes @ away) > mesh.offsets
    if view.lens.focal * actor.extent[2] < FINE_CAR_PX * distance:
        facing &= ~mesh.fine
    seen = mesh.points @ (view.matrix @ axes.T).T - view.matrix @ away
    light = np.where(mesh.glowing, 1.0, shade(mesh.normals @ axes))
    tones = hazed_once(np.minimum(mesh.colours * light[:, None], 255.0), distance).tolist()
    whole = float(seen[:, 2].min()) > NEAR_M
    pixels = _pixels(seen)
    strokes: list[Stroke] = []
    for i in np.flatnonzero(facing).tolist():
        part = slice(mesh.starts[i], mesh.starts[i + 1])
        outline = pixels[part] if whole else _clipped(seen[part])
        if outline is not None:
            strokes.append((key, outline, tones[i]))
    return strokes


def _silhouette(person: Person, distance: float, key: float, view: View) -> list[Stroke]:
    """Return a person who is small in the image as flat shapes between the feet and the crown."""
    centre = np.array((person.pose.x, person.pose.y, person.pose.z))
    axes = person.pose.axes()
    up = axes[2] * person.extent[2]
    feet, crown = view.project(np.stack([centre - up, centre + up]))
    if min(feet[2], crown[2]) <= NEAR_M:
        return []
    foot, along = feet[:2] / feet[2], crown[:2] / crown[2] - feet[:2] / feet[2]
    quads, colours = person.silhouette(axes @ (view.position - centre))
    outlines = _rounded(foot + quads @ np.stack([along, (-along[1], along[0])]))
    tones = hazed_once(colours, distance).tolist()
    return [(key, outline, tone) for outline, tone in zip(outlines, tones, strict=True)]


def _pixels(seen: FloatArray) -> Polygon:
    """Return drawing coordinates (..., 2) of projected points (..., 3) in front of the eye."""
    return _rounded(seen[..., :2] / np.maximum(seen[..., 2:], NEAR_M))


def _rounded(places: FloatArray | Float32) -> Polygon:
    # In C order whatever the input's: OpenCV takes no other.
    rounded: Polygon = np.rint(np.clip(places, -LIMIT_PX, LIMIT_PX) * (1 << SUB)).astype(np.int32, order="C")
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
