from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_td3.config import CameraConfig, NarrowConfig, StackConfig
from carla_td3.env import observation
from carla_td3.env.route_line import Route
from tests.unit.agent.roads import road, state


def vector(route: Route, x: float, y: float, yaw: float, speed: float = 0.0) -> np.ndarray:
    return observation.vector(state(route, x, y, yaw, speed), 2.0)


@pytest.mark.parametrize("yaw", [0.0, 1.0, math.pi, -2.5])
def test_at_spawn_offset_and_heading_error_are_zero(yaw: float) -> None:
    """The heading error is against the route's tangent; against the next waypoint it would not be zero in a curve."""
    values = vector(road((119, 0.0), yaw=yaw), 0.0, 0.0, yaw)
    np.testing.assert_allclose(values[:3], 0.0, atol=1e-7)


@pytest.mark.parametrize("yaw", [0.0, 1.0, math.pi, -2.5])
def test_route_points_lie_straight_ahead_in_the_cars_frame(yaw: float) -> None:
    values = vector(road((119, 0.0), yaw=yaw), 0.0, 0.0, yaw)
    np.testing.assert_allclose(values[3:-2:2], 1.0, atol=1e-6)
    np.testing.assert_allclose(values[4:-2:2], 0.0, atol=1e-6)


def test_right_of_the_line_is_positive() -> None:
    values = vector(road((119, 0.0)), 10.0, 1.0, 0.0)  # y points right in CARLA's frame
    assert values[1] == pytest.approx(0.5)
    assert values[4] == pytest.approx(-1.0 / 2.0)
    assert values[50] == pytest.approx(-1.0 / 48.0)


def test_pointing_right_is_a_positive_heading_error() -> None:
    assert vector(road((119, 0.0)), 10.0, 0.0, 0.3)[2] == pytest.approx(0.3 / (math.pi / 2))


@given(st.floats(-200, 200), st.floats(-200, 200), st.floats(-10, 10), st.floats(0, 200), st.floats(-math.pi, math.pi))
def test_any_state_lies_in_the_space(x: float, y: float, yaw: float, speed: float, along: float) -> None:
    values = vector(road((119, 0.0), yaw=along), x, y, yaw, speed)
    assert observation.space(CameraConfig())["vector"].contains(values)  # type: ignore[index]


def test_the_newest_frame_is_last() -> None:
    frames = [np.full((1, 84, 84), k, np.uint8) for k in range(6)]
    stack = observation.Stack(StackConfig(), frames[0])
    images = [stack.image]
    assert (images[0] == 0).all()
    for frame in frames[1:]:
        stack.add(frame)
        images.append(stack.image)
    assert [int(plane[0, 0]) for plane in images[-1]] == [2, 3, 4, 5]
    assert [int(plane[0, 0]) for plane in images[2]] == [0, 0, 1, 2]


def test_frames_that_lie_apart_remember_longer() -> None:
    camera = CameraConfig(channels="rgb", narrow=NarrowConfig(), stack=StackConfig(frames=2, every=3))
    stack = observation.Stack(camera.stack, np.zeros((4, 84, 84), np.uint8))
    for k in range(1, 6):
        stack.add(np.full((4, 84, 84), k, np.uint8))
    assert [int(plane[0, 0]) for plane in stack.image] == [2, 2, 2, 2, 5, 5, 5, 5]
    assert observation.space(camera)["image"].contains(stack.image)  # type: ignore[index]
