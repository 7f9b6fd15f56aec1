"""The look of people: limbs that swing with the steps, a trunk and a head, in the colours of a blueprint.

Owns the figures; ``skeleton`` owns the places of the joints. A figure consists of tapered blocks in an order that suits
the direction of view; far away it is five flat shapes. Never touches cameras or pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.skeleton import BONES, PHASES, Joint, Point, Posture, gait, joints, offset
from carla_lite.scenery.vehicle_meshes import BGR, SHADOW, TYRE, Glow, Part, VehicleMesh, packed, turned_outwards

SIDES = 8
TAG_PEDESTRIAN = 12
FLAT_PX = 14.0
"""Half height in pixels below which people are flat shapes."""

_SKIN, _HAIR, _TOP, _TROUSERS, _SHOES, _SHADE, _STEEL = range(7)
_SHOE, _CHAIR = (40, 40, 44), (128, 128, 130)


@dataclass(frozen=True)
class Look:
    """The colours of one figure, BGR, and whether it sits in a wheelchair."""

    skin: BGR
    hair: BGR
    top: BGR
    trousers: BGR
    wheelchair: bool = False


@dataclass(slots=True)  # not frozen: like Pose
class Person:
    """A walker for cameras: pose of the body's centre, half sizes (m), colours, and phase of its stride.

    ``strides`` counts the strides walked; None for standing. A posture ``given`` by a client replaces the gait's.
    """

    pose: Pose
    extent: tuple[float, float, float]
    look: Look
    strides: float | None = None
    tag: int = TAG_PEDESTRIAN
    given: Posture | None = None
    actor: int = 0
    """The walker's id."""

    @property
    def phase(self) -> int | None:
        """Phase of the stride, one of ``PHASES``; None for standing."""
        return None if self.strides is None else int(self.strides * PHASES) % PHASES

    @property
    def posture(self) -> Posture:
        """Places of its bones."""
        return self.given or gait(self.phase, self.look.wheelchair)

    def mesh(self, away: Sequence[float], _half_px: float) -> VehicleMesh:
        """Return the figure for an eye at ``away`` from its centre (m, in its frame)."""
        side = round(math.atan2(away[1], away[0]) * SIDES / math.tau) % SIDES
        look, half_height_m = self.look, self.extent[2]
        if self.given is not None:
            return _dressed.__wrapped__(_assembled(self.given, look.wheelchair, side), look, half_height_m)
        return _dressed(_figure(self.phase, look.wheelchair, side), look, half_height_m)


@dataclass(frozen=True)
class People:
    """n distant people as arrays. Each is drawn as five flat shapes."""

    ids: NDArray[np.intp]
    """(n,) of the walkers."""
    places: FloatArray
    """(3, n) centres of the bodies (m)."""
    turns: FloatArray
    """(3, n) pitch, yaw and roll (rad)."""
    half_heights: FloatArray
    phases: NDArray[np.intp]
    """(n,) of the stride; ``PHASES`` for standing."""
    colours: FloatArray
    """(n, 5, 3) of the shapes (:func:`flat_colours`)."""

    def silhouettes(self, ahead: FloatArray, aside: FloatArray) -> FloatArray:
        """Return the shapes (n, 5, 4, 2) as seen from ``ahead`` (or behind) and ``aside`` (n,): the way from the feet
        to the crown, and across it, in heights of the body.
        """
        profiles = np.rint(4.0 * aside / np.maximum(np.hypot(ahead, aside), 1e-6)).astype(np.intp)
        quads: FloatArray = _all_quads()[self.phases, profiles]
        return quads


@lru_cache(maxsize=1)
def _all_quads() -> FloatArray:
    """Return the quads by phase, the last of which is standing, and by profile."""
    return np.array([[_quads(phase, profile) for profile in range(5)] for phase in (*range(PHASES), None)])


@dataclass(frozen=True)
class _Block:
    """A tapered block between two points, with half widths ahead and across at each end, in heights of the body."""

    start: Point
    end: Point
    at_start: tuple[float, float]
    at_end: tuple[float, float]
    part: int
    across: Point = (0.0, 1.0, 0.0)

    def faces(self) -> list[FloatArray]:
        """Return the outlines (4, 3) of the sides and of the cap at ``end``, in either orientation."""
        axis = np.subtract(self.end, self.start)
        across = np.array(self.across)
        ahead = np.cross(across, axis)
        ahead /= max(float(np.linalg.norm(ahead)), 1e-9)
        rings = []
        for point, (x, y) in ((self.start, self.at_start), (self.end, self.at_end)):
            middle = np.array(point)
            rings.append([middle + u * x * ahead + v * y * across for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))])
        low, high = rings
        sides = [[low[i], low[j], high[j], high[i]] for i, j in pairwise((0, 1, 2, 3, 0))]
        return [np.array(face) for face in (*sides, high)]


@dataclass(frozen=True)
class _Wheel:
    """A disc that stands along x."""

    start: Point
    radius: float
    part: int

    @property
    def end(self) -> Point:
        """The hub as the second end: a wheel has no length."""
        return self.start

    def faces(self) -> list[FloatArray]:
        """Return both sides, slightly apart."""
        turn = np.linspace(0.0, math.tau, 12, endpoint=False)
        rim = np.stack([np.cos(turn), np.zeros(12), np.sin(turn)], axis=1) * self.radius + self.start
        aside = np.array((0.0, 0.01, 0.0))
        return [rim + aside, rim - aside]


@dataclass(frozen=True, eq=False)
class _Figure:
    """A figure two units high without colours; each panel belongs to a part."""

    mesh: VehicleMesh
    parts: NDArray[np.intp]


@lru_cache(maxsize=2 * (PHASES + 1) * SIDES)
def _figure(phase: int | None, wheelchair: bool, side: int) -> _Figure:
    return _assembled(gait(phase, wheelchair), wheelchair, side)


def _assembled(posture: Posture, wheelchair: bool, side: int) -> _Figure:
    """Return the figure for a posture, in the order that suits a direction of view."""
    blocks: list[_Block | _Wheel] = [*_body(posture), *(_chair() if wheelchair else ())]
    # Far parts first, as seen from this side; lower ones first among equals.
    turn = math.tau * side / SIDES
    toward = np.array((math.cos(turn), math.sin(turn), 0.15))
    blocks.sort(key=lambda block: float(toward @ (np.array(block.start) + np.array(block.end))))
    outlines, normals, parts = [_shadow()], [np.array((0.0, 0.0, 1.0))], [_SHADE]
    for block in blocks:
        middle = (np.array(block.start) + np.array(block.end)) / 2
        for outline, normal in turned_outwards(block.faces(), middle):
            outlines.append(outline)
            normals.append(normal)
            parts.append(block.part)
    scaled = [2.0 * outline for outline in outlines]
    glow = [Glow.UNSHADED if part == _SHADE else Glow.SUN for part in parts]
    uncoloured = np.column_stack([np.zeros((len(parts), 3)), glow])
    of = [Part.SHADOW if part == _SHADE else Part.BODY for part in parts]
    return _Figure(packed(scaled, np.array(normals), uncoloured, of), np.array(parts))


@lru_cache(maxsize=512)
def _dressed(figure: _Figure, look: Look, half_height_m: float) -> VehicleMesh:
    """Return a figure with its size and colours."""
    palette = (look.skin, look.hair, look.top, look.trousers, _SHOE, SHADOW, _CHAIR if look.wheelchair else TYRE)
    rows, count, traits = figure.mesh.rows.copy(), figure.mesh.count, figure.mesh.traits.copy()
    rows[:count, :3] *= half_height_m
    rows[count:, 3] *= half_height_m
    traits[:, :3] = np.array(palette, dtype=np.float64)[figure.parts]
    return VehicleMesh(rows, count, traits)


def _quads(phase: int | None, profile: int) -> FloatArray:
    """Return two legs, trunk, head and hair; ``profile`` is from 0 (seen from before or behind) to 4 (from a side)."""
    share = profile / 4.0
    spread = 0.0 if phase is None else 0.19 * share * math.sin(math.tau * phase / PHASES)
    apart, wide, head = 0.05 * (1.0 - share), 0.15 - 0.075 * share, 0.045 + 0.01 * share
    return np.array(
        [
            _quad((0.0, apart + spread), (0.5, apart), 0.035, 0.05),
            _quad((0.0, -apart - spread), (0.5, -apart), 0.035, 0.05),
            _quad((0.46, 0.0), (0.84, 0.0), 0.8 * wide, wide),
            _quad((0.84, 0.0), (0.96, 0.0), head, head),
            _quad((0.94, 0.0), (1.0, 0.0), head, 0.8 * head),
        ]
    )


def _quad(low: tuple[float, float], high: tuple[float, float], half_low: float, half_high: float) -> list[list[float]]:
    (a, x), (b, y) = low, high
    return [[a, x - half_low], [a, x + half_low], [b, y + half_high], [b, y - half_high]]


@lru_cache(maxsize=256)
def flat_colours(look: Look) -> FloatArray:
    """Return the colours (5, 3) of a distant figure: two legs, trunk, head and hair."""
    lit = np.array([0.72, 0.8, 0.9, 0.9, 0.9])
    colours: FloatArray = np.array([look.trousers, look.trousers, look.top, look.skin, look.hair]) * lit[:, None]
    return colours


def _shadow() -> FloatArray:
    turn = np.linspace(0.0, math.tau, 8, endpoint=False)
    return np.stack([0.16 * np.cos(turn), 0.16 * np.sin(turn), np.full(8, -0.496)], axis=1)


def _body(posture: Posture) -> list[_Block]:
    at = dict(zip(BONES, joints(posture), strict=True))
    hips, spine, head = at["crl_hips__C"], at["crl_spine01__C"], at["crl_Head__C"]
    waist, collar = offset(hips, (0.0, 0.0, -0.04)), offset(spine, (0.0, 0.0, 0.1))
    blocks = [
        _Block(waist, collar, (0.055, 0.085), (0.06, 0.115), _TOP, _axis(spine, 1)),
        _Block(collar, head[0], (0.03, 0.03), (0.03, 0.03), _SKIN, _axis(spine, 1)),
        *_head(head),
    ]
    for side in "RL":
        blocks += _leg(*(at[f"crl_{bone}__{side}"] for bone in ("thigh", "leg", "foot")))
        blocks += _arm(*(at[f"crl_{bone}__{side}"] for bone in ("arm", "foreArm", "hand", "handMiddle")))
    return blocks


def _axis(joint: Joint, which: int) -> Point:
    """Return an axis of a joint: x, y or z."""
    x, y, z = (float(which == axis) for axis in range(3))
    return offset(((0.0, 0.0, 0.0), joint[1]), (x, y, z))


def _head(joint: Joint) -> list[_Block]:
    across = _axis(joint, 1)
    return [
        _Block(offset(joint, (x, 0.0, z)), offset(joint, (x, 0.0, up)), low, high, part, across)
        for x, z, up, low, high, part in (
            (0.003, -0.005, 0.095, (0.045, 0.036), (0.052, 0.042), _SKIN),
            (-0.027, 0.025, 0.115, (0.034, 0.045), (0.034, 0.04), _HAIR),
            (-0.005, 0.09, 0.135, (0.06, 0.047), (0.04, 0.032), _HAIR),
        )
    ]


def _leg(hip: Joint, knee: Joint, foot: Joint) -> list[_Block]:
    sole, instep = offset(foot, (0.035, 0.0, -0.005)), offset(foot, (0.035, 0.0, 0.04))
    return [
        _Block(knee[0], hip[0], (0.038, 0.036), (0.052, 0.046), _TROUSERS, _axis(hip, 1)),
        _Block(foot[0], knee[0], (0.027, 0.028), (0.038, 0.036), _TROUSERS, _axis(knee, 1)),
        _Block(sole, instep, (0.075, 0.028), (0.05, 0.026), _SHOES, _axis(foot, 1)),
    ]


def _arm(shoulder: Joint, elbow: Joint, hand: Joint, fingers: Joint) -> list[_Block]:
    return [
        _Block(elbow[0], shoulder[0], (0.026, 0.024), (0.036, 0.03), _TOP, _axis(shoulder, 2)),
        _Block(hand[0], elbow[0], (0.02, 0.018), (0.026, 0.024), _TOP, _axis(elbow, 2)),
        _Block(fingers[0], hand[0], (0.022, 0.014), (0.018, 0.014), _SKIN, _axis(hand, 2)),
    ]


def _chair() -> list[_Block | _Wheel]:
    """Return the wheelchair of a seated figure."""
    parts: list[_Block | _Wheel] = [
        _Block((-0.03, 0.0, -0.25), (-0.03, 0.0, -0.21), (0.13, 0.13), (0.13, 0.13), _STEEL),
        _Block((-0.13, 0.0, -0.21), (-0.15, 0.0, 0.02), (0.012, 0.12), (0.012, 0.12), _STEEL),
    ]
    for way in (1.0, -1.0):
        parts.append(_Wheel((-0.06, 0.16 * way, -0.33), 0.17, _SHOES))
        parts.append(_Wheel((-0.06, 0.163 * way, -0.33), 0.13, _STEEL))
    return parts
