"""The networks compute what they say: the exact convolution, bounded features, small first actions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from carla_td3.config import CameraConfig, NetworkConfig
from carla_td3.td3.networks import Actor, Critic, Encoder, Policy, joined
from carla_td3.td3.replay.frames import FrameStack, space_to_depth

SMALL = NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,))


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), dtype=np.uint8)


def _pixel_kernel(weight: torch.Tensor) -> torch.Tensor:
    """Return the 8×8 kernel over 4 frames that a 2×2 one over 64 space-to-depth channels stands for."""
    outputs = weight.shape[0]
    blocks = weight.reshape(outputs, 4, 4, 4, 2, 2)  # frame, y, x, Y, X
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(outputs, 4, 8, 8)


def test_first_convolution_equals_8x8_stride_4_over_scaled_pixels(images: np.ndarray) -> None:
    encoder = Encoder(NetworkConfig()).double()
    frames = torch.from_numpy(space_to_depth(images))
    channels = torch.cat(frames.unbind(1), dim=-1).permute(0, 3, 1, 2).double()
    ours = functional.conv2d(channels, encoder.conv1.weight / 255, encoder.conv1.bias)
    pixels = torch.from_numpy(images).double() / 255
    plain = functional.conv2d(pixels, _pixel_kernel(encoder.conv1.weight), encoder.conv1.bias, stride=4)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_encoder_equals_nature_cnn_with_a_normalised_trunk(images: np.ndarray) -> None:
    encoder = Encoder(NetworkConfig(picture_weight=0.3))
    pixels = torch.from_numpy(images).float() / 255
    x = functional.conv2d(pixels, _pixel_kernel(encoder.conv1.weight), encoder.conv1.bias, stride=4).relu()
    x = functional.conv2d(x, encoder.conv2.weight, encoder.conv2.bias, stride=2).relu()
    x = functional.conv2d(x, encoder.conv3.weight, encoder.conv3.bias).relu()
    plain = encoder.norm(encoder.trunk(x.permute(0, 2, 3, 1).flatten(1))).tanh() * 0.3 * (53 / 512) ** 0.5
    torch.testing.assert_close(encoder(torch.from_numpy(space_to_depth(images))), plain, rtol=1e-4, atol=1e-5)


def test_bfloat16_encoder_stays_close_to_float32(images: np.ndarray) -> None:
    encoder = Encoder(NetworkConfig())
    frames = torch.from_numpy(space_to_depth(images))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = encoder(frames)
    assert half.dtype == torch.float32
    assert (half - encoder(frames)).abs().max() < 0.1


def test_space_to_depth_keeps_every_pixel_in_its_place(images: np.ndarray) -> None:
    cells = space_to_depth(images)
    assert cells.shape == (3, 4, 21, 21, 16)
    for y, x in ((0, 0), (3, 82), (41, 7), (83, 83)):
        np.testing.assert_array_equal(cells[..., y // 4, x // 4, 4 * (y % 4) + x % 4], images[..., y, x])


@pytest.mark.parametrize("wrong", [np.zeros((4, 84, 84), np.float32), np.zeros((80, 84), np.uint8)])
def test_frames_of_another_kind_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected uint8 of S×S, S in \(84, 64\)"):
        space_to_depth(wrong)


def test_features_depend_on_every_frame_and_stay_bounded(images: np.ndarray) -> None:
    encoder = Encoder(SMALL)
    before = encoder(torch.from_numpy(space_to_depth(images)))
    assert before.square().sum(dim=1).max() <= 53  # together no more than a vector of 53 ones
    for index in range(4):
        changed = images.copy()
        changed[:, index] = 255 - changed[:, index]
        assert not torch.allclose(encoder(torch.from_numpy(space_to_depth(changed))), before, atol=1e-3)


def test_first_actions_are_small_and_do_not_saturate() -> None:
    torch.manual_seed(0)
    config = NetworkConfig()
    action = Actor(config)(torch.rand(64, config.features) * 2 - 1, torch.rand(64, 53) * 2 - 1)
    assert action.shape == (64, 2)
    assert action.abs().max() < 0.1


def test_an_actor_driven_far_out_still_has_a_gradient() -> None:
    torch.manual_seed(0)
    actor = Actor(SMALL)
    output = actor.body[-1]
    assert isinstance(output, torch.nn.Linear)
    output.bias.data.copy_(torch.tensor([50.0, -20.0]))
    action = actor(torch.rand(8, 32), torch.rand(8, 53))
    assert action.abs().max() < 0.97
    action[:, 0].sum().backward()
    assert output.bias.grad is not None
    assert output.bias.grad.abs().min() > 1e-4


def test_twin_critics_start_different_and_first_is_the_first() -> None:
    critic = Critic(SMALL)
    inputs = torch.rand(5, 32), torch.rand(5, 53), torch.rand(5, 2), torch.rand(5, 0)
    q1, q2 = critic(*inputs)
    assert q1.shape == q2.shape == (5,)
    assert not torch.allclose(q1, q2)
    torch.testing.assert_close(critic.q1(joined(*inputs)), q1)


def test_policy_acts_on_one_observation_as_it_does_on_a_batch(images: np.ndarray) -> None:
    policy = Policy(SMALL)
    vectors = np.random.default_rng(1).normal(size=(3, 53)).astype(np.float32)
    with torch.no_grad():
        features = policy.encoder(torch.from_numpy(space_to_depth(images)))
        batched = policy.actor(features, torch.from_numpy(vectors)).numpy()
    for image, vector, expected in zip(images, vectors, batched, strict=True):
        action = policy.act(image, vector)
        assert action.shape == (2,)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, expected, atol=1e-5)


def test_colours_are_learned_as_brightness_and_their_differences() -> None:
    """The same sums, whether the weights are turned to red, green and blue, or the picture to what they are over."""
    stack = FrameStack(planes=4, frames=2, colour=(1,))
    encoder = Encoder(NetworkConfig(channels=(4, 4, 4), features=8), stack).double()
    grey, red, green, blue = planes = torch.rand(
        4, 3, 2, 16, 5, 5, dtype=torch.float64
    )  # (plane, row, frame, pixel of a cell, cells)
    opposed = grey, (red + green + blue) / 3, 3 * (red - green), 3 * (blue - (red + green) / 2)
    ours, theirs = (torch.stack(list(each), 2).flatten(1, 3) for each in (planes, opposed))
    torch.testing.assert_close(
        functional.conv2d(ours, encoder.over_pixels()), functional.conv2d(theirs, encoder.conv1.weight)
    )


def test_grey_views_are_learned_as_they_are() -> None:
    encoder = Encoder(NetworkConfig(channels=(4, 4, 4), features=8))
    assert encoder.over_pixels() is encoder.conv1.weight


def test_the_colour_planes_are_those_of_the_views_that_have_some() -> None:
    plain, both = {"channels": "rgb"}, {"channels": "rgb", "narrow": {"channels": "rgb"}}
    narrow = {"narrow": {"channels": "rgb"}}
    cameras = [CameraConfig.model_validate(each) for each in ({}, plain, narrow, both)]
    assert [FrameStack.of(camera).colour for camera in cameras] == [(), (0,), (1,), (0, 3)]
