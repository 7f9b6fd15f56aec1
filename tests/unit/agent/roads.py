"""Roads of plain numbers and cars on them, for tests of routes, rewards, drivers and pictures."""

from __future__ import annotations

import math

import numpy as np

from carla_td3.env.observation import DriverState
from carla_td3.env.route_line import Route


def road(
    *parts: tuple[int, float], yaw: float = 0.0, name: str = "a>b", junction: slice = slice(0, 0), half_m: float = 2.0
) -> Route:
    """Return a route from (0, 0): metres and curvature of each part.

    Args:
        yaw: at its start.
        junction: these metres lie in one.
        half_m: half the lane's width.
    """
    points = [np.zeros(2)]
    for metres, curvature in parts:
        for _ in range(metres):
            points.append(points[-1] + (math.cos(yaw + curvature / 2.0), math.sin(yaw + curvature / 2.0)))
            yaw += curvature
    line = np.column_stack([points, np.zeros(len(points))])
    inside = np.zeros(len(line), np.bool_)
    inside[junction] = True
    return Route.through(name, line, np.full(len(line), half_m), 0, inside)


STRAIGHT = road((400, 0.0))
CIRCUIT = road((188, 1.0 / 40.0), name="circuit")
"""Three quarters of a circle."""


def pose(on: Route, s_m: float, right_m: float = 0.0) -> tuple[float, float, float]:
    """Return x, y and yaw beside a route."""
    x, y, yaw = (float(np.interp(s_m, on.s, values)) for values in (*on.points.T, on.yaw))
    return x - right_m * math.sin(yaw), y + right_m * math.cos(yaw), yaw


def state(on: Route, x_m: float = 0.0, y_m: float = 0.0, yaw: float = 0.0, speed_mps: float = 5.0) -> DriverState:
    """Return a car on a route."""
    return DriverState(on, on.project(x_m, y_m), x_m, y_m, yaw, speed_mps)
