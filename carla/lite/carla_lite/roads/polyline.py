"""Polylines in the plane: arc length of their points, and sampling by arc length."""

from __future__ import annotations

import numpy as np

from carla_lite.roads.reference_line import FloatArray


def along(points: FloatArray) -> FloatArray:
    """Return the arc length (n,) at each of the points (n, ≥ 2), seen from above."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points[:, :2], axis=0).T))])


def sampled(points: FloatArray, at: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the points (m, k) at arc lengths ``wanted`` (m,) of a polyline (n, k) with arc lengths ``at`` (n,)."""
    return np.stack([np.interp(wanted, at, column) for column in points.T], axis=1)
