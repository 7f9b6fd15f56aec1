"""Paint on the road where people cross it: the stripes of crosswalks, and stop lines.

Owns the shapes. Never touches pixels: ``paint`` draws them on the asphalt.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from carla_lite.roads.canvas import longer_axis
from carla_lite.roads.crossings import Crossings
from carla_lite.roads.reference_line import FloatArray

STRIPE_M, PITCH_M = 0.5, 1.0


def painted_on(crossings: Crossings) -> Iterator[FloatArray]:
    """Yield the outlines (n, 2) of all paint for crossings, in metres."""
    for crosswalk in crossings.crosswalks:
        yield from _stripes(crosswalk[:, :2])
    for line in crossings.stop_lines:
        yield line[:, :2]


def _stripes(outline: FloatArray) -> Iterator[FloatArray]:
    """Yield stripes across a crosswalk's longer side, along which people walk, each cut to the outline."""
    middle, along, length = longer_axis(outline)
    across = np.array((-along[1], along[0]))
    places = np.stack([(outline - middle) @ along, (outline - middle) @ across], axis=1)
    # From the middle of the road outwards, so that both ends look the same.
    count = int((0.5 * length - 0.5 * STRIPE_M) / PITCH_M)
    for i in range(-count, count + 1):
        edges = [(at, _span(places, at)) for at in (i * PITCH_M - 0.5 * STRIPE_M, i * PITCH_M + 0.5 * STRIPE_M)]
        if all(len(span) == 2 for _, span in edges):
            (near, (a, b)), (far, (c, d)) = edges
            yield middle + np.array([(near, a), (near, b), (far, d), (far, c)]) @ np.stack([along, across])


def _span(places: FloatArray, at: float) -> list[float]:
    """Return where a line with this first coordinate enters and leaves an outline (n, 2); empty if it misses it."""
    after = np.roll(places, -1, axis=0)
    cut = (places[:, 0] < at) != (after[:, 0] < at)
    (x0, y0), (x1, y1) = places[cut].T, after[cut].T
    ends = y0 + (at - x0) / (x1 - x0) * (y1 - y0)
    return [float(ends.min()), float(ends.max())] if len(ends) else []
