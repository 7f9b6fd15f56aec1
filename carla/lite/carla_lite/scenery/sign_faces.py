"""The look of traffic lights' heads and signs' plates, and of their posts.

Owns shapes, sizes and colours. Never touches cameras, pixels or a light's cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.roads.signals import Signal, SignalType
from carla_lite.scenery.meshes import CORNERS, FACES, NORMALS
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.statics import TAG_POLE, StaticBox
from carla_lite.scenery.vehicle_meshes import BGR, FINE_PX, Glow, VehicleMesh, packed

LAMP_M = 0.3
"""Diameter of a lamp."""
_HEAD_HALF_M = (0.11, 0.22, 0.6)
_PLATE_HALF_M = (0.02, 0.4, 0.4)
# Height of the lower edge if the map doesn't say that the sign hangs; lower than this, it is the foot of the post.
_HEAD_FROM_M, _PLATE_FROM_M = 2.3, 1.9
_HANGS_FROM_M = 1.5
_POST_HALF_M, _ARM_HALF_M = 0.06, 0.05
_POST: BGR = (96, 94, 92)

_HOUSING: BGR = (40, 42, 40)
_BACK: BGR = (140, 140, 138)
_WHITE: BGR = (236, 238, 238)
_RED: BGR = (36, 32, 196)
_BLACK: BGR = (34, 34, 34)
_AHEAD = np.array((1.0, 0.0, 0.0))
# Strokes of a letter on a grid of 1 × 2: those of a seven-segment digit by bit (top, upper left and right, middle,
# lower left and right, bottom), and the upright of a T.
_STROKES = (
    ((0, 2), (1, 2)),
    ((0, 1), (0, 2)),
    ((1, 1), (1, 2)),
    ((0, 1), (1, 1)),
    ((0, 0), (0, 1)),
    ((1, 0), (1, 1)),
    ((0, 0), (1, 0)),
    ((0.5, 0), (0.5, 2)),
)
_LETTERS = {
    **dict(zip("0123456789", (0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F), strict=True)),
    **{"S": 0x6B, "T": 0x81, "O": 0x77, "P": 0x1F},
}


class LampState(Enum):
    """The lit lamp of a head, from top to bottom."""

    RED = 0
    YELLOW = 1
    GREEN = 2
    DARK = 3


_LIT: tuple[BGR, ...] = ((48, 40, 255), (40, 205, 255), (130, 255, 70))
_UNLIT: tuple[BGR, ...] = ((26, 24, 68), (22, 58, 70), (34, 62, 28))


@dataclass(frozen=True, slots=True)
class SignFace:
    """A head or plate: ``pose`` of its box's centre, half sizes in metres, CityObjectLabel, panels, the sign's id."""

    pose: Pose
    extent: tuple[float, float, float]
    tag: int
    panels: tuple[Panel, ...]
    actor: int = 0

    def mesh(self, _away: Sequence[float], half_px: float) -> VehicleMesh:
        """Return its panels, from either side, for half its height in pixels."""
        return _mesh(self.panels, half_px >= FINE_PX)


@dataclass(frozen=True, eq=False)
class Panel:
    """A convex piece around the centre of the sign, which faces along x."""

    outline: FloatArray  # (n, 3) m
    normal: FloatArray  # (3,)
    colour: BGR
    glowing: bool = False
    fine: bool = False
    """Whether it is left out when the sign is small in the image."""


@lru_cache
def _mesh(panels: tuple[Panel, ...], fine: bool) -> VehicleMesh:
    shown = [panel for panel in panels if fine or not panel.fine]
    looks = [(*panel.colour, Glow.SIGNAL if panel.glowing else Glow.SUN) for panel in shown]
    return packed([panel.outline for panel in shown], np.array([panel.normal for panel in shown]), np.array(looks))


def face_of(signal: Signal, ground_m: float, lamp: LampState, actor: int = 0) -> SignFace:
    """Return the head or plate of a signal.

    Args:
        ground_m: height of the road beside it.
        actor: id of the sign.
    """
    is_light = signal.type is SignalType.LIGHT
    extent = _half_m(signal)
    panels = _head(lamp) if is_light else _plate(signal.type, signal.limit)
    pose = Pose(signal.x, signal.y, _bottom(signal, ground_m) + extent[2], 0.0, signal.yaw + math.pi)
    return SignFace(pose, extent, 7 if is_light else 8, panels, actor)


def post_of(signal: Signal, ground_m: float) -> StaticBox:
    """Return the post up to the head or plate."""
    return _upright((signal.x, signal.y), ground_m, _bottom(signal, ground_m))


def mast_of(signal: Signal, foot: tuple[float, float], ground_m: float) -> tuple[StaticBox, StaticBox]:
    """Return the post beside the road, with its foot at ``ground_m``, and the arm from it to a sign above the road."""
    half, dx, dy = _ARM_HALF_M, signal.x - foot[0], signal.y - foot[1]
    top = _bottom(signal, ground_m) + 2.0 * _half_m(signal)[2] + half
    middle = foot[0] + 0.5 * dx, foot[1] + 0.5 * dy, top
    arm = StaticBox(*middle, 0.5 * math.hypot(dx, dy), half, half, math.atan2(dy, dx), _POST, TAG_POLE)
    return _upright(foot, ground_m, top + half), arm


def _upright(foot: tuple[float, float], bottom: float, top: float) -> StaticBox:
    half, half_height = _POST_HALF_M, 0.5 * (top - bottom)
    return StaticBox(*foot, bottom + half_height, half, half, half_height, 0.0, _POST, TAG_POLE)


def _half_m(signal: Signal) -> tuple[float, float, float]:
    return _HEAD_HALF_M if signal.type is SignalType.LIGHT else _PLATE_HALF_M


def _bottom(signal: Signal, ground_m: float) -> float:
    """Return the height of the head's or plate's lower edge (m)."""
    is_light = signal.type is SignalType.LIGHT
    if signal.z - ground_m > _HANGS_FROM_M:
        return signal.z - _half_m(signal)[2]
    return ground_m + (_HEAD_FROM_M if is_light else _PLATE_FROM_M)


@lru_cache
def _head(lamp: LampState) -> tuple[Panel, ...]:
    return *_housing(), *_lamps(lamp)


def _housing() -> Iterator[Panel]:
    corners = CORNERS * _HEAD_HALF_M
    for face, normal in zip(FACES, NORMALS, strict=True):
        yield Panel(corners[face], normal, _HOUSING)
    yield Panel(corners[:4], np.array((0.0, 0.0, -1.0)), _HOUSING)


def _lamps(lit: LampState) -> Iterator[Panel]:
    ahead, _, half = _HEAD_HALF_M
    for lamp in (LampState.RED, LampState.YELLOW, LampState.GREEN):
        disc = _regular(12, 0.5 * LAMP_M, ahead + 0.01, 2.0 * half / 3.0 * (1 - lamp.value))
        shines = lamp is lit
        yield Panel(disc, _AHEAD, (_LIT if shines else _UNLIT)[lamp.value], glowing=shines, fine=not shines)


@lru_cache
def _plate(kind: SignalType, limit: str) -> tuple[Panel, ...]:
    half = _PLATE_HALF_M[1]
    sides, turn = {SignalType.STOP: (8, math.pi / 8.0), SignalType.YIELD: (3, -0.5 * math.pi)}.get(kind, (16, 0.0))
    back = Panel(_regular(sides, half, -0.01, turn=turn), -_AHEAD, _BACK)
    rim = Panel(_regular(sides, half, 0.01, turn=turn), _AHEAD, _WHITE if kind is SignalType.STOP else _RED)
    inner = _RED if kind is SignalType.STOP else _WHITE
    share = 0.62 if kind is SignalType.YIELD else 0.9 if kind is SignalType.STOP else 0.78
    middle = Panel(_regular(sides, share * half, 0.02, turn=turn), _AHEAD, inner)
    return back, rim, middle, *_lettering(kind, limit)


def _lettering(kind: SignalType, limit: str) -> Iterator[Panel]:
    if kind is SignalType.STOP:
        yield from _text("STOP", (0.09, 0.1, 0.15), 0.016, _WHITE)
    elif kind is SignalType.SPEED_LIMIT:
        yield from _text(limit, (0.12, 0.14, 0.2), 0.02, _BLACK)


def _text(text: str, size: tuple[float, float, float], half: float, colour: BGR) -> Iterator[Panel]:
    """Yield strokes; ``size`` is a letter's width, half its height and the pitch, ``half`` half a stroke's width."""
    width, height, pitch = size
    letters = [_LETTERS[letter] for letter in text if letter in _LETTERS]
    for index, letter in enumerate(letters):
        # For a reader the plate's +y is on the left.
        left = pitch * 0.5 * (len(letters) - 1) - pitch * index + 0.5 * width
        for bit, ((u0, v0), (u1, v1)) in enumerate(_STROKES):
            if letter >> bit & 1:
                ends = left - u1 * width - half, left - u0 * width + half
                span = (v0 - 1) * height - half, (v1 - 1) * height + half
                yield Panel(_rectangle(*ends, *span, 0.03), _AHEAD, colour, fine=True)


def _regular(sides: int, radius: float, x: float, z: float = 0.0, turn: float = 0.0) -> FloatArray:
    """Return a regular polygon (sides, 3) across the x axis."""
    angles = np.linspace(0.0, math.tau, sides, endpoint=False) + turn
    return np.stack([np.full(sides, x), radius * np.cos(angles), z + radius * np.sin(angles)], axis=1)


def _rectangle(right: float, left: float, low: float, high: float, x: float) -> FloatArray:
    return np.array([(x, right, low), (x, left, low), (x, left, high), (x, right, high)])
