"""Polylines in the plane: how far along them their points are, and other points on them."""

from __future__ import annotations

import numpy as np

from carla_lite.roads.reference_line import FloatArray


def along(points: FloatArray) -> FloatArray:
    """Return how far from the first of some points (n, ≥ 2) each is, seen from above (n,)."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points[:, :2], axis=0).T))])


def sampled(points: FloatArray, at: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the points (m, k) at ``wanted`` (m,) along a polyline (n, k) whose points are ``at`` (n,)."""
    return np.stack([np.interp(wanted, at, column) for column in points.T], axis=1)
