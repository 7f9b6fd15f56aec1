"""What is drawn over the backdrop, as flat polygons in the image with a key that orders them: still things and cars.

Owns projection, culling and the part before the eye. Never touches the image: ``camera`` fills the strokes, and another
kind of camera could fill the same ones with tags or depths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.meshes import StaticMesh, windows
from carla_lite.scenery.people import Person
from carla_lite.scenery.projection import NEAR_M, Pose, View
from carla_lite.scenery.sign_faces import SignFaces
from carla_lite.scenery.vehicle_meshes import BEAMS, Lights, Shape, VehicleMesh, vehicle_mesh
from carla_lite.scenery.vista import FARTHEST_M, IN_FRONT, Float32, Vista, Walls

SUB = 4  # fractional bits of polygon coordinates
SMALLEST_CAR_PX = 1.5
FINE_CAR_PX = 16.0
FLAT_PERSON_PX = 14.0  # half the height
WINDOWS_FROM_FOCAL = 150.0
GLASS = (112.0, 96.0, 82.0)
LIT_WINDOW = (118.0, 186.0, 228.0)
LIMIT_PX = 1e5
LEAST_GLARE_PX, GLARE_M = 0.7, 0.13
LOW_BEAM_M, HIGH_BEAM_M = 24.0, 45.0
BEAM_BGR = (58.0, 72.0, 78.0)
BEAM_SEEN_M = 90.0
_BEAM_SHARES, _BEAM_GAINS = np.array((1.0, 0.75, 0.5)), (0.4, 0.7, 1.0)
_BEAM = np.array(((0.0, -0.03), (0.8, -0.17), (0.95, -0.1), (1.0, 0.0), (0.95, 0.1), (0.8, 0.17), (0.0, 0.03)))
_ROUND = np.array([(math.cos(turn), math.sin(turn)) for turn in (k * math.tau / 10.0 for k in range(10))])
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
    lights: int = 0
    """Those of ``Lights`` that shine now."""

    def mesh(self, _away: FloatArray, fine: bool) -> VehicleMesh:
        """Return its panels, whichever side they are seen from; if not fine, as one that is small in the image."""
        return vehicle_mesh(self.shape, self.extent, self.colour, fine, self.lights)


Drawn: TypeAlias = BoxActor | Person


def still_strokes(vista: Vista, mesh: StaticMesh, view: View, lamps: float = 0.0) -> list[Stroke]:
    """Return the polygons of a vista that are in the image, from far to near; with ``lamps``, lit windows too."""
    if not vista.parts:
        return []
    # A polygon is out of the image when all its corners are beyond one edge, whether before the eye or behind it.
    planes = view.planes
    seen = vista.points @ planes.T.astype(np.float32) + (planes @ (vista.origin - view.position)).astype(np.float32)
    shown = np.flatnonzero((np.maximum.reduceat(seen, vista.starts) > _BOUNDS).all(axis=1))
    depth = seen[:, 2]
    ahead = np.minimum.reduceat(depth, vista.starts)[shown] > NEAR_M
    pixels = pixels_of(seen[:, :2] / np.maximum(depth, np.float32(NEAR_M))[:, None])
    strokes: list[Stroke] = []
    panes: list[_Pane] = []
    near = view.lens.focal >= WINDOWS_FROM_FOCAL
    for i, whole in zip(shown.tolist(), ahead.tolist(), strict=True):
        part = vista.parts[i]
        outline = pixels[part] if whole else _clipped(seen[part])
        if outline is None:
            continue
        strokes.append((vista.keys[i], outline, vista.colours[i]))
        wall = vista.windowed[i]
        if wall is not None and near:
            panes.append((len(strokes), windows(mesh.boxes[wall[0]])[wall[1]], wall))
    return _with_windows(strokes, panes, view, lamps) if panes else strokes


_Pane = tuple[int, FloatArray, tuple[int, int]]
"""The windows (m, 4, 3) of one wall, where among the strokes they go, and the numbers of building and wall."""


def _with_windows(strokes: list[Stroke], panes: Sequence[_Pane], view: View, lamps: float) -> list[Stroke]:
    """Return the strokes with the windows after their walls; where lamps are on, some are lit."""
    quads = view.project(np.concatenate([quads for _, quads, _ in panes]))
    before = quads[..., 2].min(axis=1) > NEAR_M
    pixels, whole = _pixels(quads), bool(before.all())
    complete: list[Stroke] = []
    done = first = 0
    for place, walls, (building, wall) in panes:
        complete += strokes[done:place]
        key, _, colour = strokes[place - 1]
        span = slice(first, first + len(walls))
        done, first = place, span.stop
        dark = [0.35 * own + 0.65 * glass for own, glass in zip(colour, GLASS, strict=True)]
        if not lamps:
            complete.append((key, pixels[span] if whole else pixels[span][before[span]], dark))
            continue
        dark = [0.35 * own + 0.65 * glass * 0.2 for own, glass in zip(colour, GLASS, strict=True)]
        lit = (np.arange(len(walls)) * 7 + building * 5 + wall * 3) % 11 < 3
        complete.append((key, pixels[span][before[span] & ~lit], dark))
        complete.append((key, pixels[span][before[span] & lit], LIT_WINDOW))
    return [stroke for stroke in complete + strokes[done:] if len(stroke[1])]


def actor_strokes(actors: Sequence[Drawn], walls: Walls, view: View, daylight: Daylight) -> list[Stroke]:
    """Return the panels of what moves and is in view."""
    shown = _in_view(actors, view)
    if not shown:
        return []
    behind = walls.hide(view.position, np.array([(actor.pose.x, actor.pose.y) for _, actor in shown])).tolist()
    strokes: list[Stroke] = []
    solid: list[tuple[float, float, Drawn]] = []
    for (distance, actor), wall in zip(shown, behind, strict=True):
        key = wall + 1e-2 if wall >= 0.0 else distance + IN_FRONT
        if isinstance(actor, Person) and view.lens.focal * actor.extent[2] < FLAT_PERSON_PX * distance:
            strokes += _silhouette(actor, distance, key, view, daylight)
        else:
            solid.append((distance, key, actor))
    return strokes + _solid_strokes(solid, view, daylight) if solid else strokes


def _solid_strokes(chosen: Sequence[tuple[float, float, Drawn]], view: View, daylight: Daylight) -> list[Stroke]:
    """Return the panels of actors, given with their distances and keys."""
    # Few calls on long arrays, since a call costs more than its sums: one product an actor gives its points in the
    # image and how its panels face the eye and the sun; the rest is done for all panels together.
    axes = np.array([actor.pose.axes() for *_, actor in chosen])
    away = view.position - np.array([(actor.pose.x, actor.pose.y, actor.pose.z) for *_, actor in chosen])
    seen_from = (axes @ away[..., None])[..., 0]
    focal = view.lens.focal
    meshes = [
        actor.mesh(eye, focal * actor.extent[2] >= FINE_CAR_PX * distance)
        for (distance, _, actor), eye in zip(chosen, seen_from, strict=True)
    ]
    turns = np.zeros((len(chosen), 4, 5))
    turns[:, :3, :3] = axes @ view.matrix.T
    turns[:, :3, 3] = seen_from
    turns[:, :3, 4] = axes @ daylight.sun
    turns[:, 3, :3] = -away @ view.matrix.T
    turns[:, 3, 3] = 1.0
    products = [mesh.rows @ turn for mesh, turn in zip(meshes, turns, strict=True)]
    seen = np.concatenate([product[: mesh.count, :3] for mesh, product in zip(meshes, products, strict=True)])
    sides = np.concatenate([product[mesh.count :, 3:] for mesh, product in zip(meshes, products, strict=True)])
    facing = np.flatnonzero(sides[:, 0] > 0.0)
    # Of each panel: its first point, its actor's key, the share of its own colour, and the haze.
    of, first = [], 0
    for (distance, key, _), mesh in zip(chosen, meshes, strict=True):
        share = daylight.haze_share(distance)
        of.append((first, key, 1.0 - share, *(share * tone for tone in daylight.haze_bgr)))
        first += mesh.count
    own = np.repeat(np.array(of), [len(mesh.traits) for mesh in meshes], axis=0)[facing]
    traits = np.concatenate([mesh.traits for mesh in meshes])[facing]
    light = daylight.shade(sides[facing, 1])
    light[traits[:, 3] > 0.0] = daylight.unlit
    shining = traits[:, 3] > 1.0
    if shining.any():
        light[shining] = 1.0
        own[shining, 2:] = 1.0, 0.0, 0.0, 0.0  # a lamp is seen through haze
    tones = (np.minimum(traits[:, :3] * light, 255.0) * own[:, 2:3] + own[:, 3:]).tolist()
    spans = (traits[:, 4:] + own[:, :1]).astype(np.intp).tolist()
    pixels, whole = _pixels(seen), bool(seen[:, 2].min() > NEAR_M)
    strokes: list[Stroke] = []
    for (start, end), key, tone, lamp in zip(spans, own[:, 1].tolist(), tones, shining.tolist(), strict=True):
        outline = pixels[start:end] if whole else _clipped(seen[start:end])
        if outline is None:
            continue
        strokes.append((key, outline, tone))
        if lamp:
            strokes.append((key, _glare(outline, float(seen[start:end, 2].max()), view), tone))
    return strokes


def _glare(outline: Polygon, depth: float, view: View) -> Polygon:
    """Return a disc around a lamp, never smaller than is seen."""
    radius = max(LEAST_GLARE_PX, GLARE_M * view.lens.focal / max(depth, NEAR_M))
    glare: Polygon = (outline[0] + outline[len(outline) // 2]) // 2 + _disc(round(radius * (1 << SUB)))
    return glare


@lru_cache(maxsize=256)
def _disc(radius: int) -> Polygon:
    disc: Polygon = np.rint(radius * _ROUND).astype(np.int32)
    return disc


def beam_strokes(actors: Sequence[Drawn], view: View) -> list[Stroke]:
    """Return what head lamps shine on: patches of the ground, each with the light that it has more (100: ClearNoon's),
    the weaker ones first."""
    px, py, _ = view.position.tolist()
    near = [
        actor
        for actor in actors
        if isinstance(actor, BoxActor)
        and actor.lights & BEAMS
        and abs(actor.pose.x - px) < BEAM_SEEN_M
        and abs(actor.pose.y - py) < BEAM_SEEN_M
    ]
    if not near:
        return []
    places = np.array([(a.pose.x, a.pose.y, a.pose.z - a.extent[2]) for a in near])
    turns = np.array([a.pose.axes()[:2] for a in near])
    long = np.array([HIGH_BEAM_M if a.lights & Lights.HIGH_BEAM else LOW_BEAM_M for a in near])
    # (actor, patch, corner, along and across), then the same seen
    corners = long[:, None, None, None] * _BEAM_SHARES[:, None, None] * _BEAM
    corners[..., 0] += np.array([a.extent[0] for a in near])[:, None, None]
    seen = view.project(places[:, None, None] + corners @ turns[:, None])
    ahead = seen[..., 2] > NEAR_M
    beyond = (seen[..., 0] < 0.0) | (seen[..., 0] > view.lens.width * seen[..., 2])
    shown = ahead.any(axis=(1, 2)) & ~(beyond & ahead).all(axis=(1, 2))
    seen, whole = seen[shown], np.asarray(ahead[shown].all(axis=2)).tolist()
    pixels = _pixels(seen)
    patches: list[Stroke] = []
    for which, gain in enumerate(_BEAM_GAINS):
        colour = [gain * part for part in BEAM_BGR]
        for i in range(len(seen)):
            outline = pixels[i, which] if whole[i][which] else _clipped(seen[i, which])
            if outline is not None:
                patches.append((gain, outline, colour))
    return patches


def _in_view(actors: Sequence[Drawn], view: View) -> list[tuple[float, Drawn]]:
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


def sign_strokes(signs: SignFaces, walls: Walls, view: View, daylight: Daylight) -> list[Stroke]:
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
    glowing = signs.glowing[panels]
    light = np.where(glowing[:, None], 1.0, daylight.shade(signs.normals[panels] @ daylight.sun))
    tones = daylight.hazed(np.minimum(signs.colours[panels] * light, 255.0), distance[owners]).tolist()
    seen = view.project(signs.points)
    pixels = _pixels(seen)
    strokes: list[Stroke] = []
    glares = (glowing & (daylight.lamps > 0.0)).tolist()
    for panel, key, tone, glare in zip(panels.tolist(), keys, tones, glares, strict=True):
        part = signs.parts[panel]
        outline = pixels[part] if seen[part, 2].min() > NEAR_M else _clipped(seen[part])
        if outline is not None:
            strokes.append((key, outline, tone))
            if glare:
                strokes.append((key, _glare(outline, float(seen[part, 2].max()), view), tone))
    return strokes


def _silhouette(person: Person, distance: float, key: float, view: View, daylight: Daylight) -> list[Stroke]:
    """Return a person who is small in the image as flat shapes between the feet and the crown."""
    centre = np.array((person.pose.x, person.pose.y, person.pose.z))
    axes = np.array(person.pose.axes())
    up = axes[2] * person.extent[2]
    feet, crown = view.project(np.stack([centre - up, centre + up]))
    if min(feet[2], crown[2]) <= NEAR_M:
        return []
    foot, along = feet[:2] / feet[2], crown[:2] / crown[2] - feet[:2] / feet[2]
    quads, colours = person.silhouette(axes @ (view.position - centre))
    outlines = pixels_of(foot + quads @ np.stack([along, (-along[1], along[0])]))
    tones = daylight.hazed(colours * daylight.unlit, np.full(len(colours), distance)).tolist()
    return [(key, outline, tone) for outline, tone in zip(outlines, tones, strict=True)]


def _pixels(seen: FloatArray) -> Polygon:
    """Return drawing coordinates (..., 2) of projected points (..., 3) in front of the eye."""
    return pixels_of(seen[..., :2] / np.maximum(seen[..., 2:], NEAR_M))


def pixels_of(places: FloatArray | Float32) -> Polygon:
    """Return drawing coordinates (..., 2) of places in the image (..., 2), in pixels."""
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
