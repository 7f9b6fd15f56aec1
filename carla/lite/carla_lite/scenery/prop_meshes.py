"""The look of props: a few convex parts each, drawn from far to near for the side from which they are seen.

Owns the shapes. Lengths are shares of a prop's box: x from -1 (behind) to 1 (ahead), y from -1 (left) to 1 (right), z
from 0 (ground) to 1. Never touches cameras, pixels or a prop's size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.meshes import CORNERS, FACES
from carla_lite.scenery.projection import Pose
from carla_lite.scenery.vehicle_meshes import BGR, Glow, VehicleMesh, packed, turned_outwards

SIDES = 8
TAG_DYNAMIC = 21
_ROUND = 10
_WHITE, _DARK, _GLASS, _LEAVES = (226, 228, 230), (52, 50, 48), (150, 128, 104), (58, 120, 78)

Span: TypeAlias = tuple[float, float]
Part: TypeAlias = tuple[Sequence[FloatArray], BGR]
"""A convex body: the outlines (n, 3) of its faces, in either orientation, and its colour."""
Shape: TypeAlias = Callable[[BGR], Iterator[Part]]


@dataclass(slots=True)
class Thing:
    """A prop for cameras: ``pose`` of its box's centre, half sizes (m), BGR colour, shape, label and id."""

    pose: Pose
    extent: tuple[float, float, float]
    colour: BGR
    shape: Shape
    tag: int = TAG_DYNAMIC
    actor: int = 0

    def mesh(self, away: Sequence[float], _half_px: float) -> VehicleMesh:
        """Return its panels for an eye at ``away`` from its centre (m, in its frame)."""
        side = round(math.atan2(away[1], away[0]) * SIDES / math.tau) % SIDES
        return _mesh(self.shape, self.extent, self.colour, side)


@lru_cache(maxsize=512)
def _mesh(shape: Shape, extent: tuple[float, float, float], colour: BGR, side: int) -> VehicleMesh:
    turn = math.tau * side / SIDES
    toward = np.array((math.cos(turn), math.sin(turn), 0.3))
    outlines: list[FloatArray] = []
    normals, looks = [], []
    parts = [([(face * (1, 1, 2) - (0, 0, 1)) * extent for face in faces], tone) for faces, tone in shape(colour)]
    for middle, faces, tone in sorted(
        ((np.concatenate(faces).mean(axis=0), faces, tone) for faces, tone in parts),
        key=lambda part: float(toward @ part[0]),
    ):
        for outline, normal in turned_outwards(faces, middle):
            outlines.append(outline)
            normals.append(normal)
            looks.append((*tone, Glow.SUN))
    return packed(outlines, np.array(normals), np.array(looks, dtype=np.float64))


def _block(x: Span, y: Span, z: Span, colour: BGR, top: float = 1.0) -> Part:
    """Return a box; ``top`` is the size of its upper face relative to the lower one."""
    low, high = np.array((x, y, z), dtype=np.float64).T
    corners = 0.5 * (low + high) + CORNERS * (0.5 * (high - low))
    corners[4:, :2] = 0.5 * (low + high)[:2] + top * (corners[4:, :2] - 0.5 * (low + high)[:2])
    return [corners[face] for face in FACES], colour


def _turned(rings: Sequence[tuple[float, float]], colour: BGR) -> Part:
    """Return a body of revolution with its lid; each ring is a height and a radius, ascending."""
    turn = np.linspace(0.0, math.tau, _ROUND, endpoint=False)
    round_ = np.stack([np.cos(turn), np.sin(turn), np.zeros(_ROUND)], axis=1)
    circles = [radius * round_ + (0.0, 0.0, z) for z, radius in rings]
    walls = [
        np.array([low[i - 1], low[i], high[i], high[i - 1]]) for low, high in pairwise(circles) for i in range(_ROUND)
    ]
    return [*walls, circles[-1]], colour


def _legs(x: float, y: float, top: float, half: float = 0.08) -> Iterator[Part]:
    for ahead in (-x, x):
        for aside in (-y, y):
            yield _block((ahead - half, ahead + half), (aside - half, aside + half), (0.0, top), _DARK)


def box(colour: BGR) -> Iterator[Part]:
    """Yield a plain box."""
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), colour)


def cone(colour: BGR) -> Iterator[Part]:
    """Yield a traffic cone with a white ring."""
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.0, 0.05), _DARK)
    for low, high, tone in ((0.05, 0.4, colour), (0.4, 0.65, _WHITE), (0.65, 1.0, colour)):
        yield _turned([(z, 0.78 - 0.65 * z) for z in (low, high)], tone)


def barrel(colour: BGR) -> Iterator[Part]:
    """Yield a drum."""
    yield _turned(((0.0, 0.94), (0.06, 1.0), (0.94, 1.0), (1.0, 0.94)), colour)


def dustbin(colour: BGR) -> Iterator[Part]:
    """Yield a round bin with a darker lid."""
    yield _turned(((0.0, 0.8), (0.85, 0.96)), colour)
    yield _turned(((0.85, 1.0), (0.94, 0.9), (1.0, 0.5)), _DARK)


def pot(colour: BGR) -> Iterator[Part]:
    """Yield a pot with a plant."""
    yield _turned(((0.0, 0.5), (0.38, 0.75)), colour)
    yield _turned(((0.38, 0.6), (0.6, 1.0), (0.85, 0.8), (1.0, 0.3)), _LEAVES)


def bag(colour: BGR) -> Iterator[Part]:
    """Yield a soft bag."""
    yield _turned(((0.0, 0.75), (0.3, 1.0), (0.7, 0.75), (0.85, 0.25), (1.0, 0.35)), colour)


def bench(colour: BGR) -> Iterator[Part]:
    """Yield a bench that faces ahead."""
    yield from _legs(0.7, 0.85, 0.46)
    yield _block((-0.85, 1.0), (-1.0, 1.0), (0.46, 0.54), colour)
    yield _block((-1.0, -0.85), (-1.0, 1.0), (0.6, 1.0), colour)


def chair(colour: BGR) -> Iterator[Part]:
    """Yield a chair that faces ahead."""
    yield from _legs(0.8, 0.8, 0.48)
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.48, 0.56), colour)
    yield _block((-1.0, -0.8), (-0.95, 0.95), (0.56, 1.0), colour)


def table(colour: BGR) -> Iterator[Part]:
    """Yield a table."""
    yield from _legs(0.85, 0.85, 0.92)
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.92, 1.0), colour)


def sign(colour: BGR) -> Iterator[Part]:
    """Yield a plate on a post."""
    yield _block((-0.6, 0.6), (-0.09, 0.09), (0.0, 0.7), _DARK)
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.7, 1.0), colour)


def warning(colour: BGR) -> Iterator[Part]:
    """Yield a triangle on a foot."""
    yield _block((-1.0, 1.0), (-0.5, 0.5), (0.0, 0.06), _DARK)
    yield _block((-0.2, 0.2), (-0.08, 0.08), (0.06, 0.3), _DARK)
    for half, tone, rise in ((0.06, colour, 0.0), (0.1, _WHITE, 0.13)):
        edge = np.array(((-1.0 + 2.2 * rise, 0.3 + rise), (1.0 - 2.2 * rise, 0.3 + rise), (0.0, 1.0 - 2.0 * rise)))
        front, back = (np.column_stack([np.full(3, x), edge]) for x in (half, -half))
        yield [front, back, *(np.array([front[i - 1], front[i], back[i], back[i - 1]]) for i in range(3))], tone


def board(colour: BGR) -> Iterator[Part]:
    """Yield a trailer with a board of lamps."""
    yield from _legs(0.8, 0.5, 0.1)
    yield _block((-1.0, 1.0), (-0.7, 0.7), (0.1, 0.28), _DARK)
    yield _block((-0.06, 0.06), (-1.0, 1.0), (0.42, 1.0), _DARK)
    yield _block((-0.08, 0.08), (-0.85, 0.85), (0.48, 0.94), colour)


def barrier(colour: BGR) -> Iterator[Part]:
    """Yield a striped plank on two feet."""
    for aside in (-0.8, 0.8):
        yield _block((-1.0, 1.0), (aside - 0.08, aside + 0.08), (0.0, 0.08), _DARK)
        yield _block((-0.15, 0.15), (aside - 0.05, aside + 0.05), (0.08, 0.65), _DARK)
    for stripe in range(5):
        left = -1.0 + 0.4 * stripe
        yield _block((-0.2, 0.2), (left, left + 0.4), (0.65, 1.0), _WHITE if stripe % 2 else colour)


def container(colour: BGR) -> Iterator[Part]:
    """Yield a container for waste, with its lid."""
    yield from _legs(0.7, 0.75, 0.06)
    yield _block((-0.85, 0.85), (-0.9, 0.9), (0.06, 0.85), colour, top=1.1)
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.85, 1.0), _DARK, top=0.8)


def machine(colour: BGR) -> Iterator[Part]:
    """Yield a cabinet with a window ahead."""
    yield _block((-1.0, 0.96), (-1.0, 1.0), (0.0, 1.0), colour)
    yield _block((0.96, 1.0), (-0.8, 0.8), (0.35, 0.92), _GLASS)


def shelter(colour: BGR) -> Iterator[Part]:
    """Yield a roof over a bench, open ahead."""
    yield _block((-1.0, -0.95), (-1.0, 1.0), (0.08, 0.94), _GLASS)
    yield _block((-0.7, -0.2), (-0.8, 0.8), (0.16, 0.2), _DARK)
    for aside in (-0.97, 0.97):
        yield _block((0.85, 0.95), (aside - 0.03, aside + 0.03), (0.0, 0.94), colour)
    yield _block((-1.0, 1.0), (-1.0, 1.0), (0.94, 1.0), colour)


def fountain(colour: BGR) -> Iterator[Part]:
    """Yield a basin and a column."""
    yield _turned(((0.0, 1.0), (0.22, 1.0)), colour)
    yield _turned(((0.22, 0.9), (0.23, 0.88)), _GLASS)
    yield _turned(((0.23, 0.2), (0.8, 0.12)), colour)
    yield _turned(((0.8, 0.35), (0.86, 0.45), (1.0, 0.1)), colour)
