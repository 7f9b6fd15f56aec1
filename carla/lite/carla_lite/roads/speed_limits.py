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
    """Centre points of the driving lanes with their limits; each cell of 4 m is looked up once."""

    def __init__(self, network: RoadNetwork) -> None:
        lanes = [lane for lane in network.lanes if lane.kind == "driving"]
        self._points = np.concatenate([np.empty((0, 2)), *(lane.centre[:, :2] for lane in lanes)])
        self._limits = np.concatenate([np.empty(0), *(np.full(len(p.centre), p.speed_limit_mps) for p in lanes)])
        self._known: dict[tuple[float, float], float] = {}

    def at(self, x: float, y: float) -> float:
        """Return the limit at (x, y) in km/h; if the map has none 30, the start value of CARLA's vehicles."""
        cell = x // _CELL_M, y // _CELL_M
        if cell not in self._known:
            if len(self._known) >= _KEPT_CELLS:
                self._known.clear()
            self._known[cell] = self._search((cell[0] + 0.5) * _CELL_M, (cell[1] + 0.5) * _CELL_M)
        return self._known[cell]

    def _search(self, x: float, y: float) -> float:
        if not len(self._points):
            return _UNKNOWN_KMH
        nearest = np.square(self._points - (x, y)).sum(axis=1).argmin()
        return float(self._limits[nearest]) * _MPS_TO_KMH or _UNKNOWN_KMH
