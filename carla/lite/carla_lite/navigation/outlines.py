"""The lines between the areas of a raster, each traced and simplified once, so that both sides share its corners.

Owns the lattice of pixel corners. Works in pixels; knows nothing of metres or roads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import ceil, hypot

import cv2
import numpy as np
from numpy.typing import NDArray

FINE = 4
"""Corners are multiples of this fraction of a pixel: exact in single precision, so equal corners compare equal."""
# A staircase of pixels is simplified to a line.
TOLERANCE_PX = 0.8

Corner = tuple[int, int]


def outlines(labels: NDArray[np.uint8], step_px: float) -> list[list[Corner]]:
    """Return the lines between different labels (the outside counts as 0) as corners (x, y) in 1/FINE pixels.

    A line runs from one place where three labels meet to the next, or is closed, with its first corner repeated at the
    end. Where an area reaches the raster's edge, a line lies exactly on the edge, so that it meets the areas of an
    adjacent raster. Neighbouring corners are at most ``step_px`` apart.
    """
    return [_corners(chain, step_px) for chain in _chains(np.pad(labels, 1))]


def _corners(chain: list[Corner], step_px: float) -> list[Corner]:
    """Simplify a chain of lattice points, and remove its padding of one pixel."""
    closed = chain[0] == chain[-1]
    points = np.array(chain[:-1] if closed else chain, np.int32) - 1
    kept = cv2.approxPolyDP(points, TOLERANCE_PX, closed).reshape(-1, 2)
    if closed:
        kept = np.concatenate([kept, kept[:1]])
    fine: list[list[int]] = (kept * FINE).astype(int).tolist()
    line = [(fine[0][0], fine[0][1])]
    for (x0, y0), (x1, y1) in pairwise(fine):
        parts = ceil(hypot(x1 - x0, y1 - y0) / (FINE * step_px))
        line += [(round(x0 + (x1 - x0) * i / parts), round(y0 + (y1 - y0) * i / parts)) for i in range(1, parts + 1)]
    return line


def _chains(labels: NDArray[np.uint8]) -> Iterator[list[Corner]]:
    """Yield the borders as chains of neighbouring corners: first those between nodes, then closed ones."""
    neighbours: dict[Corner, list[Corner]] = {}
    across = np.argwhere(labels[:-1] != labels[1:])  # border between a pixel and its lower neighbour
    down = np.argwhere(labels[:, :-1] != labels[:, 1:])
    for row, column in across.tolist():
        _join(neighbours, (column, row + 1), (column + 1, row + 1))
    for row, column in down.tolist():
        _join(neighbours, (column + 1, row), (column + 1, row + 1))
    nodes = {corner for corner, others in neighbours.items() if len(others) != 2}
    rows, columns = range(1, labels.shape[0]), range(1, labels.shape[1])
    edge = {*product(columns, (rows[0], rows[-1])), *product((columns[0], columns[-1]), rows)}
    nodes |= {corner for corner in edge & neighbours.keys() if _turns(corner, neighbours[corner])}
    for start in [*(corner for corner in neighbours if corner in nodes), *neighbours]:
        while neighbours[start]:
            yield _follow(neighbours, start, nodes)


def _turns(corner: Corner, others: list[Corner]) -> bool:
    """Return whether a chain changes its direction at a corner."""
    return all(len({corner[axis], *(other[axis] for other in others)}) > 1 for axis in (0, 1))


def _join(neighbours: dict[Corner, list[Corner]], a: Corner, b: Corner) -> None:
    neighbours.setdefault(a, []).append(b)
    neighbours.setdefault(b, []).append(a)


def _follow(neighbours: dict[Corner, list[Corner]], start: Corner, nodes: set[Corner]) -> list[Corner]:
    """Return the chain from a corner to the next node or back to the start, and remove it from the neighbours."""
    chain = [start]
    while len(chain) == 1 or (chain[-1] not in nodes and chain[-1] != start):
        following = neighbours[chain[-1]].pop(0)
        neighbours[following].remove(chain[-1])
        chain.append(following)
    return chain
