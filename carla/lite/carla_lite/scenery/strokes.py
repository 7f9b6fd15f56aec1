"""Everything drawn over the backdrop, as flat polygons in the image with a sorting key: static and moving things.

Owns projection, culling and clipping at the eye. Never touches the image: ``camera`` fills the strokes with colours,
``surfaces`` fills the same strokes with the numbers of their faces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.daylight import Daylight
from carla_lite.scenery.meshes import StaticMesh
from carla_lite.scenery.people import People, Person
from carla_lite.scenery.projection import NEAR_M, Lens, Pose, View, all_axes
from carla_lite.scenery.prop_meshes import Thing
from carla_lite.scenery.sign_faces import SignFace
from carla_lite.scenery.vehicle_meshes import BEAMS, Detail, Glow, Lights, Shape, VehicleMesh, vehicle_mesh
from carla_lite.scenery.vista import FARTHEST_M, Float32, Vista, Walls

SUB = 4  # fractional bits of polygon coordinates
_PER_PIXEL = float(1 << SUB)
SMALLEST_CAR_PX = 1.5
WINDOWS_FROM_FOCAL = 150.0
GLASS = (112.0, 96.0, 82.0)
LIT_WINDOW = (118.0, 186.0, 228.0)
LIMIT_PX = 1e5
LARGEST_M = 10.0  # largest distance of a moving thing's parts from its centre
LEAST_GLARE_PX, GLARE_M = 0.7, 0.13
LOW_BEAM_M, HIGH_BEAM_M = 24.0, 45.0
BEAM_BGR = (58.0, 72.0, 78.0)
BEAM_SEEN_M = 90.0
_BEAM_SHARES, _BEAM_GAINS = np.array((1.0, 0.75, 0.5)), (0.4, 0.7, 1.0)
_BEAM = np.array(((0.0, -0.03), (0.8, -0.17), (0.95, -0.1), (1.0, 0.0), (0.95, 0.1), (0.8, 0.17), (0.0, 0.03)))
_ROUND = np.array([(math.cos(turn), math.sin(turn)) for turn in (k * math.tau / 10.0 for k in range(10))])
_BOUNDS = np.array((0.0, 0.0, NEAR_M, 0.0, 0.0), np.float32)[:, None]

# Plain numbers, which numpy compares faster.
_UNSHADED, _SIGNAL, _LAMP = int(Glow.UNSHADED), int(Glow.SIGNAL), int(Glow.LAMP)

Polygon = NDArray[np.int32]
Stroke = tuple[float, Polygon, Sequence[float], int]
"""A key (larger ones are drawn first), a convex polygon (n, 2) or several quads (m, 4, 2), the BGR colour, and the
number of the face: first a vista's polygons, then panels of moving things, then distant people.
"""
NO_FACE = -1
"""Face of strokes that only shine, or lie on a face that is already drawn."""


@dataclass(slots=True)  # like Pose
class BoxActor:
    """A moving box: ``pose`` of the box's centre, half sizes in metres, BGR colour, CityObjectLabel, shape."""

    pose: Pose
    extent: tuple[float, float, float]
    colour: tuple[int, int, int]
    tag: int
    shape: Shape
    lights: int = 0
    """The ``Lights`` that shine now."""
    actor: int = 0
    """The vehicle's id."""

    def mesh(self, _away: Sequence[float], half_px: float) -> VehicleMesh:
        """Return its panels, from either side, for half its height in pixels."""
        return vehicle_mesh(self.shape, self.extent, self.colour, Detail.of(half_px), self.lights)


Drawn: TypeAlias = BoxActor | Person | SignFace | Thing


def still_strokes(vista: Vista, mesh: StaticMesh, view: View, lamps: float = 0.0) -> list[Stroke]:
    """Return a vista's polygons that are in the image, from far to near; with ``lamps`` also lit windows."""
    if not vista.keys:
        return []
    planes = np.empty((5, 4), np.float32)
    planes[:, :3] = view.planes
    planes[:, 3] = view.planes @ (vista.origin - view.position)
    corners = (planes @ vista.points).reshape(5, -1, len(vista.keys))
    # A polygon is outside the image if all its corners are beyond one edge, in front of the eye or behind it. (Plain
    # ufuncs: the arrays' methods for this take twice as long.)
    inside = np.maximum.reduce(corners, axis=1) > _BOUNDS
    shown = np.logical_and.reduce(inside, axis=0).nonzero()[0]
    seen = corners[:3].take(shown, axis=2)
    ahead = (np.minimum.reduce(seen[2]) > NEAR_M).tolist()
    pixels = _pixels(seen)
    keys, colours, counts = vista.keys, vista.colours, vista.corners
    strokes: list[Stroke] = []
    kept: list[int] = []
    for at, (i, whole) in enumerate(zip(shown.tolist(), ahead, strict=True)):
        outline = pixels[at, : counts[i]] if whole else _clipped(seen[:, : counts[i], at].T)
        if outline is not None:
            strokes.append((keys[i], outline, colours[i], i))
            kept.append(i)
    if view.lens.focal < WINDOWS_FROM_FOCAL:
        return strokes
    walls = [(place, vista.windowed[i]) for place, i in enumerate(kept, 1)]
    panes = [(place, mesh.windows(wall[0])[wall[1]], wall) for place, wall in walls if wall is not None]
    return _with_windows(strokes, panes, view, lamps) if panes else strokes


_Pane = tuple[int, FloatArray, tuple[int, int]]
"""The windows (m, 4, 3) of one wall, their position among the strokes, and the numbers of building and wall."""


def _with_windows(strokes: list[Stroke], panes: Sequence[_Pane], view: View, lamps: float) -> list[Stroke]:
    """Return the strokes with the windows after their walls; with lamps on, some windows are lit."""
    quads = view.project(np.concatenate([quads for _, quads, _ in panes]))
    before = quads[..., 2].min(axis=1) > NEAR_M
    pixels, whole = _pixels(quads.T), bool(before.all())
    complete: list[Stroke] = []
    done = first = 0
    for place, walls, (building, wall) in panes:
        complete += strokes[done:place]
        key, _, colour, _ = strokes[place - 1]
        span = slice(first, first + len(walls))
        done, first = place, span.stop
        dark = [0.35 * own + 0.65 * glass for own, glass in zip(colour, GLASS, strict=True)]
        if not lamps:
            complete.append((key, pixels[span] if whole else pixels[span][before[span]], dark, NO_FACE))
            continue
        dark = [0.35 * own + 0.65 * glass * 0.2 for own, glass in zip(colour, GLASS, strict=True)]
        lit = (np.arange(len(walls)) * 7 + building * 5 + wall * 3) % 11 < 3
        complete.append((key, pixels[span][before[span] & ~lit], dark, NO_FACE))
        complete.append((key, pixels[span][before[span] & lit], LIT_WINDOW, NO_FACE))
    return [stroke for stroke in complete + strokes[done:] if len(stroke[1])]


@dataclass(slots=True)
class Moving:
    """The strokes of vehicles, people and signs in view, and the things that they show."""

    strokes: list[Stroke]
    group: Composition | None = None
    """The panels of ``solid``, in order."""
    products: FloatArray | None = None
    """(5, rows of the group): for points u × depth, v × depth and depth; for panels, in the fourth row, how far the eye
    is in front of them (m).
    """
    places: FloatArray | None = None
    """(3, things) the same products for the centres of the panels' things."""
    solid: Sequence[Drawn] = ()
    flat: People | None = None

    def poses(self) -> dict[int, Pose]:
        """Return the poses of all things, by the ids of their actors."""
        found = {thing.actor: thing.pose for thing in self.solid}
        if self.flat is not None:
            placed = np.concatenate((self.flat.places, self.flat.turns)).T.tolist()
            found.update(zip(self.flat.ids.tolist(), itertools.starmap(Pose, placed), strict=True))
        return found


def actor_strokes(
    actors: Sequence[Drawn], people: People | None, walls: Walls, view: View, daylight: Daylight, first: int = 0
) -> Moving:
    """Return the vehicles, people and signs in view, and the distant people; faces are numbered from ``first``."""
    shown = _in_view(actors, view)
    placed = np.array([(actor.pose.x, actor.pose.y, distance) for distance, actor in shown]).reshape(-1, 3)
    if people is not None:
        away = view.position[:, None] - people.places
        distances = np.sqrt(away[0] * away[0] + away[1] * away[1] + away[2] * away[2])
        placed = np.concatenate((placed, np.stack((*people.places[:2], distances), axis=1)))
    if not len(placed):
        return Moving([])
    keys = walls.keys(view.position, placed[:, :2], placed[:, 2])
    solid = [(distance, key, actor) for (distance, actor), key in zip(shown, keys.tolist(), strict=False)]
    seen = _solid_strokes(solid, view, daylight, first) if solid else Moving([])
    if people is not None:
        after = first + (0 if seen.group is None else len(seen.group.owners))
        flat = _flat_strokes(people, away, distances, keys[len(shown) :], view, daylight, after)
        seen.strokes = flat + seen.strokes
        seen.flat = people
    return seen


_Shown = tuple[float, float, Any]
"""Distance, key, and the thing."""


class Composition:
    """Several meshes joined, cached because the same ones are in view for many pictures."""

    def __init__(self, meshes: Sequence[VehicleMesh]) -> None:
        ends = list(itertools.accumulate(len(mesh.rows) for mesh in meshes))
        firsts = [0, *ends[:-1]]
        self.size = ends[-1]
        self.spans = [slice(first, end) for first, end in zip(firsts, ends, strict=True)]
        self.panels = np.concatenate([np.arange(a + m.count, b) for a, b, m in zip(firsts, ends, meshes, strict=True)])
        self.owners = np.repeat(np.arange(len(meshes)), [len(mesh.traits) for mesh in meshes])
        traits = np.concatenate([mesh.traits for mesh in meshes])
        self.colours, self.glow, self.parts = traits[:, :3].copy(), traits[:, 3].copy(), traits[:, 6].copy()
        self.shines = bool((self.glow >= _SIGNAL).any())
        self.reaches = np.array([mesh.reach_m for mesh in meshes])
        self.bounds = traits[:, 4:6].astype(np.intp) + np.array(firsts)[self.owners, None]
        self.outlines = [slice(start, end) for start, end in self.bounds.tolist()]
        self.meshes = meshes


_MOST_KEPT = 24  # things: those of a crowd change with each step of a walker
_composition = lru_cache(maxsize=128)(Composition)


def _solid_strokes(chosen: Sequence[_Shown], view: View, daylight: Daylight, first: int) -> Moving:
    """Return the panels of the things with a mesh."""
    # Few calls on long arrays, since a call costs more than its sums: one product per thing gives its points in the
    # image and how its panels face the eye and the sun; the rest is done for all panels together.
    px, py, pz = view.pose.x, view.pose.y, view.pose.z
    (sx, sy, sz), focal = daylight.sun.tolist(), view.lens.focal
    meshes: list[VehicleMesh] = []
    frames: list[float] = []
    of: list[float] = []
    for distance, key, actor in chosen:
        pose = actor.pose
        x, y, z = px - pose.x, py - pose.y, pz - pose.z
        (a, b, c), (d, e, f), (g, h, i) = pose.axes()
        eye = a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z
        meshes.append(actor.mesh(eye, focal * actor.extent[2] / max(distance, NEAR_M)))
        # For each axis and for the centre: its place, and how far it points towards the eye and the sun.
        frames += (a, b, c, eye[0], a * sx + b * sy + c * sz, d, e, f, eye[1], d * sx + e * sy + f * sz)
        frames += (g, h, i, eye[2], g * sx + h * sy + i * sz, -x, -y, -z, 1.0, 0.0)
        # The key, the share of the panel's colour, and the haze.
        share = daylight.haze_share(distance)
        of += (key, 1.0 - share, *[share * tone for tone in daylight.haze_bgr])
    rows = np.array(frames).reshape(-1, 5)
    rows[:, :3] = rows[:, :3] @ view.matrix.T
    turns = rows.reshape(-1, 4, 5)
    group = (_composition if len(meshes) <= _MOST_KEPT else Composition)(tuple(meshes))
    products = np.empty((5, group.size))
    for mesh, turn, span in zip(meshes, turns, group.spans, strict=True):
        np.matmul(turn.T, mesh.rows.T, products[:, span])
    facing = (products[3].take(group.panels) > 0.0).nonzero()[0]
    own = np.array(of).reshape(-1, 5).take(group.owners.take(facing), 0)
    glow = group.glow.take(facing)
    light = daylight.shade(products[4].take(group.panels.take(facing)))
    light[glow == _UNSHADED] = daylight.unlit
    if group.shines:
        light[glow >= _SIGNAL] = 1.0
        own[glow == _LAMP, 1:] = 1.0, 0.0, 0.0, 0.0  # a lamp is visible through haze
    glares = (glow >= (_SIGNAL if daylight.lamps else _LAMP)).tolist() if group.shines else itertools.repeat(False)
    tones = (np.minimum(group.colours.take(facing, 0) * light, 255.0) * own[:, 1:2] + own[:, 2:]).tolist()
    seen = products[:3]
    pixels, ahead = _pixels(seen), itertools.repeat(True)
    if (turns[:, 3, 2] - group.reaches).min() <= NEAR_M:  # few of the panels are cut
        nearest = np.minimum.reduceat(seen[2], group.bounds.take(facing, 0).ravel())[::2]
        ahead = (nearest > NEAR_M).tolist()
    strokes: list[Stroke] = []
    outlines = group.outlines
    for panel, key, tone, glare, whole in zip(facing.tolist(), own[:, 0].tolist(), tones, glares, ahead, strict=False):
        outline = pixels[outlines[panel]] if whole else _clipped(seen[:, outlines[panel]].T)
        if outline is None:
            continue
        strokes.append((key, outline, tone, first + panel))
        if glare:
            strokes.append((key, _glare(outline, float(seen[2, outlines[panel]].max()), view), tone, NO_FACE))
    return Moving(strokes, group, products, turns[:, 3, :3].T, [thing for *_, thing in chosen])


def _glare(outline: Polygon, depth: float, view: View) -> Polygon:
    """Return a disc around a lamp, never too small to be visible."""
    radius = max(LEAST_GLARE_PX, GLARE_M * view.lens.focal / max(depth, NEAR_M))
    glare: Polygon = (outline[0] + outline[len(outline) // 2]) // 2 + _disc(round(radius * (1 << SUB)))
    return glare


@lru_cache(maxsize=256)
def _disc(radius: int) -> Polygon:
    disc: Polygon = np.rint(radius * _ROUND).astype(np.int32)
    return disc


def beam_strokes(actors: Sequence[Drawn], view: View) -> list[Stroke]:
    """Return the patches of ground lit by head lamps, each with the light that it adds (100: ClearNoon's), weakest
    first.
    """
    px, py = view.pose.x, view.pose.y
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
    # (actor, patch, corner, along and across), then the same in view
    corners = long[:, None, None, None] * _BEAM_SHARES[:, None, None] * _BEAM
    corners[..., 0] += np.array([a.extent[0] for a in near])[:, None, None]
    seen = view.project(places[:, None, None] + corners @ turns[:, None])
    ahead = seen[..., 2] > NEAR_M
    beyond = (seen[..., 0] < 0.0) | (seen[..., 0] > view.lens.width * seen[..., 2])
    shown = ahead.any(axis=(1, 2)) & ~(beyond & ahead).all(axis=(1, 2))
    seen, whole = seen[shown], np.asarray(ahead[shown].all(axis=2)).tolist()
    pixels = pixels_of(seen[..., :2] / np.maximum(seen[..., 2:], NEAR_M))
    patches: list[Stroke] = []
    for which, gain in enumerate(_BEAM_GAINS):
        colour = [gain * part for part in BEAM_BGR]
        for i in range(len(seen)):
            outline = pixels[i, which] if whole[i][which] else _clipped(seen[i, which])
            if outline is not None:
                patches.append((gain, outline, colour, NO_FACE))
    return patches


def farthest_m(lens: Lens) -> float:
    """Return the depth up to which moving things are visible."""
    return min(FARTHEST_M, lens.focal / SMALLEST_CAR_PX * 1.5)


def sight_m(lens: Lens) -> float:
    """Return the distance up to which moving things are visible at the image's edges."""
    return farthest_m(lens) * math.hypot(1.0, 0.5 * lens.width / lens.focal) + LARGEST_M


def _in_view(actors: Sequence[Drawn], view: View) -> list[tuple[float, Drawn]]:
    """Return the actors that may be in the image, and their distances (m)."""
    px, py, pz = view.pose.x, view.pose.y, view.pose.z
    (fx, fy, fz), (rx, ry, rz), _ = view.axes
    tangent, slack = view.tangent, view.slack
    farthest = farthest_m(view.lens)
    chosen = []
    for actor in actors:
        pose = actor.pose
        dx, dy, dz = pose.x - px, pose.y - py, pose.z - pz
        depth = fx * dx + fy * dy + fz * dz
        reach = actor.extent[0] + actor.extent[1]
        if -reach < depth < farthest and abs(rx * dx + ry * dy + rz * dz) < depth * tangent + slack * reach:
            chosen.append((math.sqrt(dx * dx + dy * dy + dz * dz), actor))
    return chosen


def _flat_strokes(
    people: People,
    away: FloatArray,
    distances: FloatArray,
    keys: FloatArray,
    view: View,
    daylight: Daylight,
    first: int,
) -> list[Stroke]:
    """Return distant people as flat shapes between feet and crown; ``away`` (3, n) is the eye as seen from them."""
    forward, right, up = all_axes(people.turns)
    quads = people.silhouettes(np.abs((forward * away).sum(axis=0)), np.abs((right * away).sum(axis=0)))
    up = up * people.half_heights
    seen = view.project(np.array((people.places - up, people.places + up)).transpose(2, 0, 1))
    places = seen[..., :2] / np.maximum(seen[..., 2:], NEAR_M)
    foot, along = places[:, 0], places[:, 1] - places[:, 0]
    basis = np.stack([along, along[:, ::-1] * (-1.0, 1.0)], axis=1)
    outlines = pixels_of(foot[:, None] + quads.reshape(len(quads), -1, 2) @ basis).reshape(quads.shape)
    tones = daylight.hazed(people.colours * daylight.unlit, distances[:, None])
    whole = (seen[..., 2].min(axis=1) > NEAR_M).nonzero()[0]
    each = np.repeat(whole, 5)
    of = zip(
        keys[each].tolist(),
        outlines[whole].reshape(-1, 4, 2),
        tones[whole].reshape(-1, 3).tolist(),
        (first + each).tolist(),
        strict=True,
    )
    return list(of)


def _pixels(seen: FloatArray | Float32) -> Polygon:
    """Return drawing coordinates (n, 2) or (n, m, 2) of projected points (3, n) or (3, m, n) in front of the eye.

    u, v and depth have a row each, since numpy is fast along long rows.
    """
    return _rounded((seen[:2] * (_PER_PIXEL / np.maximum(seen[2], NEAR_M))).T)


def pixels_of(places: FloatArray | Float32) -> Polygon:
    """Return drawing coordinates (..., 2) of places in the image (..., 2), in pixels."""
    return _rounded(places * _PER_PIXEL)


def _rounded(places: FloatArray | Float32) -> Polygon:
    cut = np.minimum(np.maximum(places, -LIMIT_PX * _PER_PIXEL), LIMIT_PX * _PER_PIXEL)
    # In C order whatever the input's: OpenCV accepts no other.
    rounded: Polygon = np.rint(cut).astype(np.int32, order="C")
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
    return _pixels(np.array(kept).T) if len(kept) >= 3 else None
