"""The agent's observation: a few frames, and a vector of speed, lane position and route points in the car's frame.

Pure: numbers in, arrays out. Every returned array is new, so that a replay may keep it. Knows no client.

A frame has a plane (grey) or three (red, green, blue) of each view, the narrow one last. The image has the planes of
``camera.stack.frames`` frames that lie ``every`` steps apart, the newest frame last: by default 4 grey planes.

The vector's 53 entries, all clipped to [-2, 2]:

======= ============================================================ =====================================
index   meaning                                                      scale
======= ============================================================ =====================================
0       speed, ≥ 0                                                   ``SPEED_SCALE_MPS``
1       distance from the route's line, positive to its right        half the lane's width
2       heading of the car against the route's tangent, positive     π / 2
        when it points to the right
3 + 2k  k-th route point ahead: metres forward of the car            (k + 1) × ``point_spacing_m``
4 + 2k  k-th route point ahead: metres right of the car              (k + 1) × ``point_spacing_m``
51      position of the wheel (``carla_td3.env.actuators``)          a steering of 1
52      position of the pedal                                        full throttle
======= ============================================================ =====================================

Each point is measured by its own distance along the route, so that its second entry is the sine of its bearing where
the road is straight: the near points, which decide the steering, weigh as much as the far ones.
Past the route's end the points go straight on.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from carla_td3.config import CameraConfig, StackConfig
from carla_td3.env.route_line import Projection, Route, multiples, turned, wrapped

ROUTE_POINTS = 24
VECTOR_SIZE = 3 + 2 * ROUTE_POINTS + 2
SPEED_SCALE_MPS = 10.0
BOUND = 2.0

Vector = NDArray[np.float32]
Frames = NDArray[np.uint8]
# The keys are those of ``space``. gymnasium types a Dict space as dict[str, Any].
Observation = dict[str, Any]


@dataclass(frozen=True)
class DriverState:
    """State of the car on its route, in metres, radians and seconds, for drivers that aren't networks."""

    route: Route
    place: Projection
    x_m: float
    y_m: float
    yaw: float
    speed_mps: float
    wheel: float = 0.0
    """Position of the wheel, -1 to 1. It differs from the last action if steering has a delay."""

    @property
    def heading_error(self) -> float:
        """Heading of the car against the route's tangent, radians in [-π, π)."""
        return wrapped(self.yaw - self.place.yaw)


def image_shape(camera: CameraConfig) -> tuple[int, int, int]:
    """Return (C, S, S)."""
    return camera.stack.frames * camera.planes, camera.height, camera.width


def space(camera: CameraConfig, privileged: int = 0) -> spaces.Space[Observation]:
    """Return the observation space: ``image`` uint8 (C, S, S), newest last; ``vector`` float32 (53,).

    Args:
        privileged: size of a float32 vector ``privileged``, which no driver receives; 0 for none.
    """
    keys: dict[str, spaces.Space[Any]] = {
        "image": spaces.Box(0, 255, image_shape(camera), np.uint8),
        "vector": spaces.Box(-BOUND, BOUND, (VECTOR_SIZE,), np.float32),
    }
    if privileged:
        keys["privileged"] = spaces.Box(-BOUND, BOUND, (privileged,), np.float32)
    return spaces.Dict(keys)


def vector(state: DriverState, spacing_m: float, applied: tuple[float, float] = (0.0, 0.0)) -> Vector:
    """Return the (53,) float32 vector of this module's table.

    Args:
        applied: positions of steering and pedal, -1 to 1.
    """
    values = np.empty(VECTOR_SIZE, np.float32)
    values[0] = state.speed_mps / SPEED_SCALE_MPS
    values[1] = state.place.lateral_m / state.place.half_lane_m
    values[2] = state.heading_error / (math.pi / 2.0)
    ahead = state.route.ahead(state.place.s_m, ROUTE_POINTS, spacing_m)
    forward, right = turned(ahead[:, 0] - state.x_m, ahead[:, 1] - state.y_m, state.yaw)
    distances = multiples(ROUTE_POINTS, spacing_m)
    values[3:-2:2], values[4:-2:2] = forward / distances, right / distances
    values[-2:] = applied
    np.maximum(values, -BOUND, out=values)
    return np.minimum(values, BOUND, out=values)


class Stack:
    """The frames of one drive that make its images. Before the first frame, that frame is repeated."""

    def __init__(self, config: StackConfig, first: Frames) -> None:
        reach = (config.frames - 1) * config.every + 1
        self._frames = deque([first] * reach, maxlen=reach)
        self._every = config.every

    def add(self, frame: Frames) -> None:
        """Take a new frame, (planes, S, S)."""
        self._frames.append(frame)

    @property
    def image(self) -> Frames:
        """Return a new array (frames · planes, S, S), the newest frame last."""
        return np.concatenate(list(self._frames)[:: self._every])
