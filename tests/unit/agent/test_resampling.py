"""Frames and weights for another frame size: averages by area, and features that change as little as they can."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carla_td3 import config
from carla_td3.config import NetworkConfig, TD3Config
from carla_td3.td3.networks import Encoder
from carla_td3.td3.replay import resampling
from carla_td3.td3.replay.frames import FrameStack, View, convolved_sides, depth_to_space, space_to_depth
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, random_batch

SMALL = TD3Config(network=NetworkConfig(channels=(8, 8, 8), features=16, hidden=(16,)), batch_size=8, policy_delay=1)
PICTURES = np.random.default_rng(3).integers(0, 256, (5, 84, 84), np.uint8)


def test_frames_shrink_as_opencv_s_area_average_shrinks_them() -> None:
    ours = depth_to_space(resampling.frames(space_to_depth(PICTURES), 64)).astype(int)
    theirs = np.stack([cv2.resize(one, (64, 64), interpolation=cv2.INTER_AREA) for one in PICTURES]).astype(int)
    assert np.abs(ours - theirs).max() <= 1  # where a half is rounded to
    assert (ours != theirs).mean() < 0.01


@given(st.integers(0, 255), st.sampled_from([(84, 64), (64, 84)]))
def test_an_even_picture_stays_what_it_is(grey: int, sides: tuple[int, int]) -> None:
    before, after = sides
    cells = space_to_depth(np.full((1, before, before), grey, np.uint8))
    assert (resampling.frames(cells, after) == grey).all()


@given(st.integers(1, 30), st.integers(1, 30))
def test_shares_of_a_cell_add_up_to_it(before: int, after: int) -> None:
    shares = resampling.shares(before, after)
    assert shares.shape == (after, before)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(shares.sum(axis=1), before / after, rtol=1e-5)


def test_the_convolutions_give_as_many_cells_as_is_said() -> None:
    for side in (84, 64):
        encoder = Encoder(SMALL.network, FrameStack(side))
        cells = torch.from_numpy(space_to_depth(np.zeros((2, 4, side, side), np.uint8)))
        assert encoder(cells).shape == (2, 16)
        assert encoder.trunk.in_features == 8 * convolved_sides(side)[-1] ** 2
    with pytest.raises(RuntimeError):
        Encoder(SMALL.network, FrameStack(64))(torch.from_numpy(space_to_depth(np.zeros((2, 4, 84, 84), np.uint8))))


def learned() -> TD3:
    td3 = TD3(SMALL, CPU, seed=0)
    for seed in range(5):
        td3.update(random_batch(8, seed))
    return td3


@pytest.mark.parametrize("grey", [0, 90, 255])
def test_an_even_picture_gives_the_features_that_it_gave(grey: int) -> None:
    """All cells of a channel are alike then: what the next layer sums up must not depend on how many there are."""
    state, before = resampling.adapted(learned().state(), 64)
    assert before == 7
    large, small = learned(), TD3(SMALL, CPU, seed=1, stack=FrameStack(64))
    small.load_state(state)
    for networks in ("online", "target"):
        seen = [
            getattr(td3, networks).encoder(
                torch.from_numpy(space_to_depth(np.full((1, 4, td3.stack.side, td3.stack.side), grey, np.uint8)))
            )
            for td3 in (large, small)
        ]
        torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


def test_a_picture_gives_features_near_those_that_it_gave() -> None:
    """Smooth pictures, as a camera's are; measured against the features of an untrained network of that size."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (16, 4, 6, 6), np.uint8).reshape(-1, 6, 6)
    pictures = [cv2.resize(one, (84, 84), interpolation=cv2.INTER_CUBIC) for one in coarse]
    cells = space_to_depth(np.stack(pictures).astype(np.uint8))
    large, adapted, fresh = (
        learned(),
        TD3(SMALL, CPU, seed=1, stack=FrameStack(64)),
        TD3(SMALL, CPU, seed=1, stack=FrameStack(64)),
    )
    adapted.load_state(resampling.adapted(large.state(), 64)[0])
    expected = large.online.encoder(torch.from_numpy(cells).view(16, 4, 21, 21, 16))
    smaller = torch.from_numpy(resampling.frames(cells, 64)).view(16, 4, 16, 16, 16)
    distances = [float((td3.online.encoder(smaller) - expected).detach().norm()) for td3 in (adapted, fresh)]
    assert distances[0] < 0.5 * distances[1]


def test_all_but_the_layer_after_the_convolutions_stays() -> None:
    state = learned().state()
    found, _ = resampling.adapted(state, 64)
    assert found.keys() == state.keys()
    changed = {name for name in state if state[name].shape != found[name].shape}
    reader = "encoder.trunk.weight"
    moments = {f"adam.{reader}.{moment}" for moment in ("exp_avg", "exp_avg_sq")}
    assert changed == {f"online.{reader}", f"target.{reader}"} | moments
    assert all(torch.equal(state[name], found[name]) for name in state if name not in changed)
    for name in moments:  # a mean, not a sum: a step is no larger for there being fewer cells
        assert found[name].shape == found[f"online.{reader}"].shape
        size = float(state[name].abs().mean())
        torch.testing.assert_close(found[name].mean(), state[name].mean(), rtol=0, atol=1e-4 * size)


def test_a_state_of_the_same_size_is_left_alone() -> None:
    state = learned().state()
    found, before = resampling.adapted(state, 84)
    assert before is None
    assert all(found[name] is state[name] for name in state)


def test_learning_goes_on_with_adapted_features_and_back_again() -> None:
    small = TD3(SMALL, CPU, seed=1, stack=FrameStack(64))
    small.load_state(resampling.adapted(learned().state(), 64)[0])
    batch = random_batch(8)
    frames = torch.from_numpy(resampling.frames(batch.frames.numpy(), 64))
    metrics = small.update(replace(batch, frames=frames))
    assert all(torch.isfinite(value) for value in metrics.values())
    large = TD3(SMALL, CPU, seed=2)
    large.load_state(resampling.adapted(small.state(), 84)[0])
    assert large.updates == small.updates == 6
    assert torch.isfinite(large.update(batch)["critic_loss"])


def test_a_detector_s_weights_serve_any_size() -> None:
    settings = SMALL.model_copy(update={"network": SMALL.network.model_copy(update={"encoder": "detector"})})
    view = View(1, fov_deg=100.0, yaw_deg=0.0, pitch_deg=-12.0, x_m=1.2, z_m=1.8)
    large, small = (
        TD3(settings, CPU, seed, stack=FrameStack(side, views=(view,))) for seed, side in ((0, 84), (1, 64))
    )
    batch = random_batch(8)
    large.update(batch)
    state, before = resampling.adapted(large.state(), 64)
    assert before is None
    small.load_state(state)
    frames = torch.from_numpy(resampling.frames(batch.frames.numpy(), 64))
    with torch.no_grad():
        seen = [
            td3.online.features(each[:, :4], batch.vector, batch.privileged)
            for td3, each in ((large, batch.frames), (small, frames))
        ]
    assert seen[0].shape == seen[1].shape
    assert torch.isfinite(small.update(replace(batch, frames=frames))["critic_loss"])
    large.load_state(resampling.adapted(small.state(), 84)[0])
    assert large.updates == 2


@pytest.mark.parametrize("camera", [{"width": 64}, {"height": 64}, {"width": 32, "height": 32}])
def test_frames_are_square_and_of_one_of_two_sizes(camera: dict[str, int]) -> None:
    with pytest.raises(config.ConfigError, match="84 or 64"):
        config.validate({"environment": {"camera": camera}}, "test")
