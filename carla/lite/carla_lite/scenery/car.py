"""What a car looks like: panels of a saloon around a bounding box.

Owns the shape and the colours of its parts. Never touches cameras or pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from carla_lite.roads.reference_line import FloatArray

BGR = tuple[int, int, int]
Corner = tuple[float, float, float]

GLASS: BGR = (86, 74, 62)
TYRE: BGR = (38, 36, 36)
RIM: BGR = (150, 150, 150)
UNDERSIDE: BGR = (50, 48, 48)
SHADOW: BGR = (52, 51, 50)
TAIL_LIGHT: BGR = (40, 36, 214)
HEAD_LIGHT: BGR = (232, 240, 244)
PLATE: BGR = (222, 224, 224)


@dataclass(frozen=True)
class CarMesh:
    """Convex panels in drawing order, metres around the box's centre; each is hidden when it faces away."""

    points: FloatArray  # (p, 3)
    starts: tuple[int, ...]
    """First point of each panel, and the total at the end."""
    normals: FloatArray  # (f, 3) outwards
    offsets: FloatArray  # (f,) a place p is in front of panel i when normals[i] @ p > offsets[i]
    colours: FloatArray  # (f, 3) BGR
    glowing: NDArray[np.bool_]  # (f,) not shaded by the sun
    fine: NDArray[np.bool_]  # (f,) left out when the car is small in the image


@dataclass(frozen=True)
class _Panel:
    corners: Sequence[Corner]
    colour: BGR
    glowing: bool = False
    fine: bool = False


@lru_cache(maxsize=256)
def car_mesh(extent: tuple[float, float, float], colour: BGR) -> CarMesh:
    """Return a saloon with half sizes ``extent`` (m)."""
    return _mesh(tuple(_saloon(colour)), extent)


@lru_cache(maxsize=256)
def box_mesh(extent: tuple[float, float, float], colour: BGR) -> CarMesh:
    """Return a plain box with half sizes ``extent`` (m), for what isn't a car."""
    low, high = 0.0, 1.0
    ends = [_across(x, 1.0, low, high, colour) for x in (1.0, -1.0)]
    sides = [_Panel([(1, y, low), (-1, y, low), (-1, y, high), (1, y, high)], colour) for y in (1.0, -1.0)]
    top = _Panel([(1, 1, 1), (-1, 1, 1), (-1, -1, 1), (1, -1, 1)], colour)
    return _mesh((*ends, *sides, top), extent)


def _saloon(body: BGR) -> Iterator[_Panel]:
    """Yield the panels: x from -1 (rear) to 1 (front), y from -1 (left) to 1 (right), z from 0 (ground) to 1 (roof)."""
    yield _Panel([(1.03, 1.06, 0.01), (1.03, -1.06, 0.01), (-1.03, -1.06, 0.01), (-1.03, 1.06, 0.01)], SHADOW, True)
    lower = [(0.96, 0.17), (1.0, 0.42), (0.42, 0.62), (-0.90, 0.68), (-1.0, 0.6), (-0.97, 0.17)]
    glass = [(0.34, 0.64), (0.02, 0.93), (-0.36, 0.95), (-0.74, 0.70)]
    pillar = [(0.42, 0.62), (0.05, 0.97), (-0.36, 1.0), (-0.88, 0.68)]
    for side in (1.0, -1.0):
        yield _Panel([(x, side, z) for x, z in lower], body)
        yield _Panel([(0.96, side, 0.13), (0.97, side, 0.22), (-0.97, side, 0.22), (-0.97, side, 0.13)], UNDERSIDE)
        for wheel in (0.62, -0.58):
            yield _wheel(wheel, 1.01 * side, 0.135, 0.22, TYRE)
            yield _wheel(wheel, 1.02 * side, 0.085, 0.14, RIM)
        yield _Panel([(x, side * _tumblehome(z), z) for x, z in pillar], body)
        yield _Panel([(x, side * (_tumblehome(z) + 0.01), z) for x, z in glass], GLASS)
    yield _across(0.98, 0.97, 0.17, 0.42, body)
    yield _across(-0.985, 0.97, 0.17, 0.64, body)
    for x in (0.985, -0.99):
        yield _across(x, 0.95, 0.13, 0.25, UNDERSIDE)
    yield _slope((0.42, 0.95, 0.62), (1.0, 0.93, 0.42), body)
    yield _slope((-0.99, 0.93, 0.64), (-0.86, 0.93, 0.69), body)
    yield _slope((-0.86, 0.9, 0.69), (-0.36, 0.74, 1.0), GLASS)
    yield _slope((0.05, 0.74, 0.97), (0.42, 0.92, 0.62), GLASS)
    yield _slope((-0.36, 0.74, 1.0), (0.05, 0.74, 0.97), body)
    yield from _lights()


def _lights() -> Iterator[_Panel]:
    for side in (0.72, -0.72):
        yield _patch(-1.0, side, 0.22, (0.50, 0.60), TAIL_LIGHT)
        yield _patch(1.0, side, 0.2, (0.33, 0.41), HEAD_LIGHT)
    for x in (-1.0, 1.0):
        yield _patch(x, 0.0, 0.26, (0.3, 0.38) if x < 0 else (0.2, 0.26), PLATE)


def _tumblehome(z: float) -> float:
    """Return the half width at a height above the waist: 0.97 at the doors, 0.74 at the roof."""
    return 0.97 - (z - 0.62) * 0.23 / 0.38


def _wheel(x: float, y: float, length: float, height: float, colour: BGR) -> _Panel:
    turn = np.linspace(0.0, 2.0 * np.pi, 10, endpoint=False)
    rim = [(x + length * float(np.cos(t)), y, 0.22 + height * float(np.sin(t))) for t in turn]
    return _Panel(rim, colour, fine=True)


def _across(x: float, half: float, low: float, high: float, colour: BGR) -> _Panel:
    return _Panel([(x, half, low), (x, half, high), (x, -half, high), (x, -half, low)], colour)


def _slope(behind: Corner, ahead: Corner, colour: BGR) -> _Panel:
    (x0, y0, z0), (x1, y1, z1) = behind, ahead
    return _Panel([(x0, y0, z0), (x1, y1, z1), (x1, -y1, z1), (x0, -y0, z0)], colour)


def _patch(x: float, y: float, half: float, span: tuple[float, float], colour: BGR) -> _Panel:
    low, high = span
    corners = [(x, y + half, low), (x, y + half, high), (x, y - half, high), (x, y - half, low)]
    return _Panel(corners, colour, glowing=True, fine=colour == PLATE)


def _mesh(panels: Sequence[_Panel], extent: tuple[float, float, float]) -> CarMesh:
    scaled = [np.array(panel.corners, dtype=np.float64) * (1, 1, 2) - (0, 0, 1) for panel in panels]
    outlines = [_outwards(corners * extent) for corners in scaled]
    starts = np.concatenate([[0], np.cumsum([len(outline) for outline in outlines])])
    thirds = [outline[[0, len(outline) // 3, 2 * len(outline) // 3]] for outline in outlines]
    normals = np.array([np.cross(second - first, third - first) for first, second, third in thirds])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return CarMesh(
        np.concatenate(outlines),
        tuple(starts.tolist()),
        normals,
        np.array([normal @ outline[0] for normal, outline in zip(normals, outlines, strict=True)]),
        np.array([panel.colour for panel in panels], dtype=np.float64),
        np.array([panel.glowing for panel in panels]),
        np.array([panel.fine for panel in panels]),
    )


def _outwards(outline: FloatArray) -> FloatArray:
    """Return the outline turned so that its normal points away from the car's middle (up, for what lies flat)."""
    third = len(outline) // 3
    normal = np.cross(outline[third] - outline[0], outline[2 * third] - outline[0])
    away = outline.mean(axis=0) - (0.0, 0.0, -0.3)
    if abs(normal[2]) > 0.99 * float(np.linalg.norm(normal)):
        away = np.array((0.0, 0.0, 1.0))
    return outline if normal @ away >= 0 else outline[::-1]
