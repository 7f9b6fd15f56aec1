"""The colours of the air: how the sky fades towards the horizon, and how distance takes colour away.

Owns two gradients. Knows no camera and no scene.
"""

from __future__ import annotations

import math

import numpy as np

from carla_lite.roads.reference_line import FloatArray

HAZE = np.array((226.0, 214.0, 200.0))  # BGR, also the sky's colour at the horizon
ZENITH = np.array((196.0, 140.0, 84.0))
HAZE_M = 260.0
"""Distance at which 63 % of a colour has turned to haze."""
_FADE_RAD = 0.28


def haze_share(distance: FloatArray | float) -> FloatArray:
    """Return the share of haze (..., ) in the colour of things at a distance (m)."""
    share: FloatArray = 1.0 - np.exp(-np.asarray(distance) / HAZE_M)
    return share


def hazed(colours: FloatArray, distance: FloatArray | float) -> FloatArray:
    """Return BGR colours (..., 3) as seen from a distance (..., ) in metres."""
    share = haze_share(distance)[..., None]
    seen: FloatArray = colours * (1.0 - share) + HAZE * share
    return seen


def hazed_once(colours: FloatArray, distance: float) -> FloatArray:
    """Return BGR colours (..., 3) seen from one distance (m); the same as ``hazed``, without arrays of distances."""
    share = 1.0 - math.exp(-distance / HAZE_M)
    return colours * (1.0 - share) + HAZE * share


def sky(elevation: FloatArray) -> FloatArray:
    """Return the BGR colour (..., 3) of the sky at angles above the horizon (rad)."""
    share = np.exp(-np.maximum(elevation, 0.0) / _FADE_RAD)[..., None]
    colours: FloatArray = ZENITH + (HAZE - ZENITH) * share
    return colours
