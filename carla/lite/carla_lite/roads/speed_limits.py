"""The speed limit at a place, which is that of the nearest driving lane.

Owns only the lookup. Traffic Managers take their target speed from it, so it is never 0.
"""

from __future__ import annotations

import numpy as np

from carla_lite.roads.network import RoadNetwork

_CELL_M = 4.0
_MPS_TO_KMH = 3.6
_UNKNOWN_KMH = 30.0
_KEPT_CELLS = 8192  # about 2 MiB: vehicles may leave the roads, and the map


class SpeedLimits:
    """Centre points of the driving lanes with their limits; each cube of 4 m is looked up once."""

    def __init__(self, network: RoadNetwork) -> None:
        lanes = [lane for lane in network.lanes if lane.kind == "driving"]
        self._points = np.concatenate([np.empty((0, 3)), *(lane.centre for lane in lanes)])
        heights = self._points[:, 2]
        self._lowest, self._highest = float(heights.min(initial=0.0)), float(heights.max(initial=0.0))
        self._limits = np.concatenate([np.empty(0), *(np.full(len(p.centre), p.speed_limit_mps) for p in lanes)])
        self._known: dict[tuple[float, float, float], float] = {}

    def at(self, x: float, y: float, z: float) -> float:
        """Return the limit at a place in km/h; if the map has none 30, the start value of CARLA's vehicles."""
        z = min(max(z, self._lowest), self._highest)  # a car that falls is looked up no more often
        cell = x // _CELL_M, y // _CELL_M, z // _CELL_M
        if cell not in self._known:
            if len(self._known) >= _KEPT_CELLS:
                self._known.clear()
            self._known[cell] = self._search(*((each + 0.5) * _CELL_M for each in cell))
        return self._known[cell]

    def _search(self, x: float, y: float, z: float) -> float:
        if not len(self._points):
            return _UNKNOWN_KMH
        nearest = np.square(self._points - (x, y, z)).sum(axis=1).argmin()
        return float(self._limits[nearest]) * _MPS_TO_KMH or _UNKNOWN_KMH
