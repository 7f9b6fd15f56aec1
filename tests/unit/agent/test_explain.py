"""Explanations of a policy where the answer is known: one that reads a single pixel, and others by differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from carla_td3.config import NetworkConfig
from carla_td3.evaluation import explain
from carla_td3.evaluation.drivers import GREY
from carla_td3.evaluation.explain import PATCH
from carla_td3.td3.networks import Encoder, Policy
from carla_td3.td3.replay.frames import VECTOR, FrameStack

VECTOR_OF_NOTHING = np.zeros(VECTOR, np.float32)
Y, X = 24, 24
"""The one pixel that matters, of the newest frame: where the middle of 7×7 outputs begins to look."""


def of_one_pixel() -> Policy:
    """Return a policy that steers only by that pixel, and never touches a pedal."""
    policy = Policy(NetworkConfig(channels=(1, 1, 1), features=4, hidden=(1,)))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        encoder, body = policy.encoder, policy.actor.body
        assert isinstance(encoder, Encoder)
        first, last = body[0], body[2]
        assert isinstance(first, torch.nn.Linear)
        assert isinstance(last, torch.nn.Linear)
        newest = 3 * 16
        encoder.conv1.weight[0, newest, 0, 0] = 1.0  # the first pixel of each cell, as a share of 255
        encoder.conv2.weight[0, 0, 0, 0] = 1.0
        encoder.conv3.weight[0, 0, 0, 0] = 1.0
        encoder.trunk.weight[0, 3 * 7 + 3] = 1.0
        encoder.trunk.bias[1:] = torch.tensor([1.0, 0.0, -1.0])  # something that the norm can hold the first against
        encoder.norm.weight.fill_(1.0)
        first.weight[0, 0] = first.bias[0] = 1.0
        last.weight[0, 0] = 0.1
    return policy


def image(seed: int = 0, planes: int = 4) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(60, 200, (planes, 84, 84), np.uint8)


def test_the_gradient_is_at_the_one_pixel_only() -> None:
    steer, pedal = explain.gradients(of_one_pixel(), image(), VECTOR_OF_NOTHING)
    assert steer.shape == (4, 84, 84)
    assert [tuple(each) for each in np.argwhere(steer)] == [(3, Y, X)]
    assert not pedal.any()


@pytest.mark.parametrize(("place", "matters"), [((3, Y, X), True), ((2, Y, X), False), ((3, Y, X + 1), False)])
def test_the_gradient_is_what_a_change_of_the_pixel_does(place: tuple[int, int, int], matters: bool) -> None:
    policy, picture = of_one_pixel(), image()
    brighter = picture.copy()
    brighter[place] += 1
    change = policy.act(brighter, VECTOR_OF_NOTHING) - policy.act(picture, VECTOR_OF_NOTHING)
    gradient = explain.gradients(policy, picture, VECTOR_OF_NOTHING)[0][place]
    assert bool(change[0]) is matters
    assert gradient == pytest.approx(change[0], rel=0.05, abs=1e-9)


def test_occlusion_finds_the_pixel_within_a_patch() -> None:
    policy, picture = of_one_pixel(), image()
    heat = explain.occlusion(policy, picture, VECTOR_OF_NOTHING, planes=1)
    greyed = picture.copy()
    greyed[:, Y, X] = GREY
    moved = np.abs(policy.act(greyed, VECTOR_OF_NOTHING) - policy.act(picture, VECTOR_OF_NOTHING)).sum()
    assert moved > 0
    assert heat[Y, X] == heat.max() == pytest.approx(moved, rel=1e-4)
    reach = [(heat[Y, X:] > 0).sum(), (heat[Y:, X] > 0).sum(), (heat[Y, :X] > 0).sum(), (heat[:Y, X] > 0).sum()]
    assert all(0 < each <= PATCH for each in reach)
    assert heat[:10].max() == heat[60:].max() == 0.0


@pytest.mark.parametrize(
    "stack", [FrameStack(), FrameStack(planes=4, frames=2, every=3), FrameStack(side=64, planes=3)]
)
def test_any_policy_s_gradient_agrees_with_differences(stack: FrameStack) -> None:
    torch.manual_seed(3)
    policy = Policy(NetworkConfig(channels=(4, 4, 4), features=16, hidden=(16,)), stack)
    with torch.no_grad():
        policy.actor.body[-1].weight.mul_(50.0)  # type: ignore[operator]  # begins near zero
    rng = np.random.default_rng(1)
    picture = rng.integers(60, 200, (stack.frames * stack.planes, stack.side, stack.side), np.uint8)
    vector = rng.uniform(-1, 1, VECTOR).astype(np.float32)
    cells = torch.from_numpy(stack.cells(picture)).unsqueeze(0)
    with torch.no_grad():
        read = torch.from_numpy(vector).unsqueeze(0)
        exact = policy.encoder.seen(cells, read)[0]
        assert torch.allclose(policy.encoder.of_floats(cells.float(), read), exact, atol=1e-4)
    gradient = explain.gradients(policy, picture, vector)
    places = [np.unravel_index(index, picture.shape) for index in np.argsort(np.abs(gradient[0]).ravel())[-5:]]
    for place in places:
        up, down = picture.copy(), picture.copy()
        up[place], down[place] = picture[place] + 3, picture[place] - 3
        difference = (policy.act(up, vector) - policy.act(down, vector)) / 6.0
        found = np.array([each[place] for each in gradient])
        assert found == pytest.approx(difference, rel=0.2, abs=2e-6)


def test_the_maps_that_are_shown_are_of_the_front_view_alone() -> None:
    stack = FrameStack(planes=4)  # three of colour, and a narrow view's
    torch.manual_seed(0)
    policy = Policy(NetworkConfig(channels=(4, 4, 4), features=16, hidden=(16,)), stack)
    found = explain.heatmaps(policy, image(planes=16), VECTOR_OF_NOTHING, planes=3)
    assert len(found) == 3
    for heat in found.values():
        assert heat.shape == (84, 84)
        assert heat.min() >= 0.0
    assert isinstance(policy.encoder, Encoder)
    with torch.no_grad():
        policy.encoder.conv1.weight.view(4, 4, 4, 16, 2, 2)[:, :, :3] = 0.0  # it looks at the narrow view only
    assert all(
        heat.max() == 0.0 for heat in explain.heatmaps(policy, image(planes=16), VECTOR_OF_NOTHING, planes=3).values()
    )
