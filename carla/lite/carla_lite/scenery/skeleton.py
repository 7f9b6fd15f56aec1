"""The bones of a walker: their names and tree as in CARLA, the gait that moves them, and poses that clients set.

Owns the place of each joint. Coordinates are in the body's frame (x ahead, y to the right, z up, origin at the body's
centre), in units of the body's height. In the reference pose the arms are held out, and each bone's axes are those of
the body; in CARLA the axes of each bone differ. Never touches colours or cameras.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from carla_lite.scenery.projection import Pose

PHASES = 8
"""Number of phases in a stride of two steps."""

Point = tuple[float, float, float]
Turn = tuple[float, float, float, float]
"""A unit quaternion: w, x, y, z."""
Joint = tuple[Point, Turn]
Posture = tuple[Joint, ...]
"""Place and rotation of each bone relative to its parent, in the order of ``BONES``."""

_UNTURNED: Turn = (1.0, 0.0, 0.0, 0.0)
_SIDES = (("L", -1.0), ("R", 1.0))
_FINGERS = (("Thumb", 0.02, 0.015), ("Index", 0.012, 0.048), ("Middle", 0.0, 0.05), ("Ring", -0.01, 0.048))
_LITTLE = ("Pinky", -0.018, 0.042)


def _tree() -> Iterator[tuple[str, str, Point]]:
    """Yield each bone's name, its parent's name and its place relative to the parent; parents come first."""
    hips, spine = "crl_hips__C", "crl_spine01__C"
    yield "crl_root", "", (0.0, 0.0, -0.5)
    yield hips, "crl_root", (0.0, 0.0, 0.53)
    yield "crl_spine__C", hips, (0.0, 0.0, 0.06)
    yield spine, "crl_spine__C", (0.0, 0.0, 0.13)
    for side, way in _SIDES:
        arm = [f"crl_{part}__{side}" for part in ("shoulder", "arm", "foreArm", "hand")]
        steps = ((0.0, 0.03, 0.085), (0.0, 0.1092, 0.0), (0.0, 0.175, 0.0), (0.0, 0.15, 0.0))
        for bone, parent, (x, y, z) in zip(arm, [spine, *arm], steps, strict=False):
            yield bone, parent, (x, way * y, z)
        for finger, ahead, along in (*_FINGERS, _LITTLE):
            bones = [f"crl_hand{finger}{part}__{side}" for part in ("", "01", "02", "End")]
            lengths = ((ahead, along), (0.0, 0.018), (0.0, 0.014), (0.0, 0.012))
            for bone, parent, (x, y) in zip(bones, [arm[-1], *bones], lengths, strict=False):
                yield bone, parent, (x, way * y, 0.0)
    yield "crl_neck__C", spine, (0.0, 0.0, 0.12)
    yield "crl_Head__C", "crl_neck__C", (0.005, 0.0, 0.02)
    for side, way in _SIDES:
        yield f"crl_eye__{side}", "crl_Head__C", (0.05, 0.018 * way, 0.065)
    for side, way in _SIDES:
        leg = [f"crl_{part}__{side}" for part in ("thigh", "leg", "foot", "toe", "toeEnd")]
        parts = (
            (0.0, 0.048 * way, -0.01),
            (0.0, 0.0, -0.25),
            (0.0, 0.0, -0.245),
            (0.065, 0.0, -0.015),
            (0.04, 0.0, 0.0),
        )
        yield from zip(leg, [hips, *leg], parts, strict=False)


BONES, _parents, _begins = (tuple(column) for column in zip(*_tree(), strict=True))
_INDEX = {bone: index for index, bone in enumerate(BONES)}
_PARENT = tuple(_INDEX.get(parent) for parent in _parents)
REFERENCE: Posture = tuple((begin, _UNTURNED) for begin in _begins)
"""Upright, with arms held out."""


@lru_cache(maxsize=2 * (PHASES + 1))
def gait(phase: int | None, seated: bool) -> Posture:
    """Return the posture in one phase of a stride, or of standing if ``phase`` is None.

    With ``seated``, the posture in one phase of turning the wheels of a wheelchair.
    """
    swing = 0.0 if phase is None else math.sin(math.tau * phase / PHASES)
    lift = 0.0 if phase is None else math.cos(math.tau * phase / PHASES)
    turned: dict[str, Pose] = {}
    bent, elbow = (0.0, 0.08) if phase is None else (0.12, 0.25)
    for side, way in _SIDES:
        hip, knee = 0.42 * way * swing, bent + 0.75 * max(0.0, way * lift)
        shoulder = -0.36 * way * swing
        if seated:
            hip, knee, shoulder, elbow = 1.55, 1.5, 0.5 * swing - 0.25, 0.8
        for bone, (pitch, yaw, roll) in {
            "thigh": (hip, 0.0, 0.0),
            "leg": (-knee, 0.0, 0.0),
            "foot": (knee - hip, 0.0, 0.0),  # flat on the ground
            "arm": (shoulder, 0.0, way * math.pi / 2),  # hangs
            "foreArm": (0.0, -way * elbow, 0.0),
        }.items():
            name = f"crl_{bone}__{side}"
            turned[name] = Pose(*REFERENCE[_INDEX[name]][0], pitch, yaw, roll)
    if seated:
        turned["crl_hips__C"] = Pose(-0.02, 0.0, 0.31)
    return moved(REFERENCE, turned)


def moved(posture: Posture, given: Mapping[str, Pose]) -> Posture:
    """Return the posture with the given poses, which are relative to the bones' parents. Unknown names are ignored."""
    joints = list(posture)
    for bone, at in given.items():
        if bone in _INDEX:
            joints[_INDEX[bone]] = (at.x, at.y, at.z), _turn(at)
    return tuple(joints)


def blended(one: Posture, other: Posture, share: float) -> Posture:
    """Return a blend of two postures: place and rotation of each bone are interpolated separately."""
    if share <= 0.0 or share >= 1.0:
        return one if share <= 0.0 else other
    return tuple(
        (_between(p, q, share), _nearest(turn, to, share)) for (p, turn), (q, to) in zip(one, other, strict=True)
    )


def joints(posture: Posture) -> Posture:
    """Return each bone's place and rotation in the body's frame."""
    found: list[Joint] = []
    for parent, (place, turn) in zip(_PARENT, posture, strict=True):
        found.append((place, turn) if parent is None else _hung(found[parent], place, turn))
    return tuple(found)


def _hung(parent: Joint, place: Point, turn: Turn) -> Joint:
    return offset(parent, place), _times(parent[1], turn)


def offset(joint: Joint, along: Point) -> Point:
    """Return the place at ``along`` in a joint's frame."""
    (x, y, z), turn = joint
    u, v, w = _turned(turn, along)
    return x + u, y + v, z + w


def pose(joint: Joint, height_m: float) -> Pose:
    """Return a joint as a pose in metres and radians, for a body of this height."""
    (x, y, z), turn = joint
    (fx, fy, fz), (_, _, rz), (_, _, uz) = (_turned(turn, axis) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    angles = math.atan2(fz, math.hypot(fx, fy)), math.atan2(fy, fx), math.atan2(-rz, uz)
    return Pose(height_m * x, height_m * y, height_m * z, *angles)


def _turn(of: Pose) -> Turn:
    """Return a pose's rotation: roll first, then pitch, then yaw; positive pitch is up, positive roll to the right."""
    yaw, pitch, roll = 0.5 * of.yaw, -0.5 * of.pitch, -0.5 * of.roll
    level = _times((math.cos(yaw), 0.0, 0.0, math.sin(yaw)), (math.cos(pitch), 0.0, math.sin(pitch), 0.0))
    return _times(level, (math.cos(roll), math.sin(roll), 0.0, 0.0))


def _times(one: Turn, other: Turn) -> Turn:
    a, b, c, d = one
    e, f, g, h = other
    return (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )


def _turned(turn: Turn, along: Point) -> Point:
    w, x, y, z = turn
    _, u, v, t = _times(_times(turn, (0.0, *along)), (w, -x, -y, -z))
    return u, v, t


def _between(p: Point, q: Point, share: float) -> Point:
    x, y, z = (a + share * (b - a) for a, b in zip(p, q, strict=True))
    return x, y, z


def _nearest(one: Turn, other: Turn, share: float) -> Turn:
    """Return the interpolation of two rotations, along the shorter of the two paths."""
    way = share if sum(a * b for a, b in zip(one, other, strict=True)) >= 0.0 else -share
    w, x, y, z = ((1.0 - share) * a + way * b for a, b in zip(one, other, strict=True))
    size = math.sqrt(w * w + x * x + y * y + z * z)
    return w / size, x / size, y / size, z / size
