"""The agent's cameras: order of colours, a narrow view of the same road, spacing of frames."""

from __future__ import annotations

import numpy as np

from carla_td3.config import CameraConfig, EnvironmentConfig, NarrowConfig, StackConfig
from tests.wire.conftest import MakeEnv

CAMERA = CameraConfig(
    channels="rgb", narrow=NarrowConfig(fov_deg=40.0, pitch_deg=-12.0), stack=StackConfig(frames=2, every=3)
)


def test_views_and_frames_reach_the_observation(make_env: MakeEnv) -> None:
    env = make_env(EnvironmentConfig(camera=CAMERA))
    observation, _ = env.reset(seed=1)
    images = [observation["image"]]
    for _ in range(6):
        images.append(env.step(np.array((0.0, 0.6), np.float32))[0]["image"])
    assert all(env.observation_space["image"].contains(image) for image in images)  # type: ignore[index]
    assert (images[0][:4] == images[0][4:]).all()
    assert (images[5][:4] == images[2][4:]).all()
    assert (images[6][:4] != images[6][4:]).any()
    red, green, blue, narrow = images[0][4:].astype(float)
    assert blue[:20].mean() > red[:20].mean() + 10  # the sky
    # Along the same axis a view of 40° is the middle of one of 100°, enlarged 3.3 times.
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    middle, whole = grey[30:54, 30:54], narrow[:84, :84].reshape(12, 7, 12, 7).mean(axis=(1, 3))
    shrunk = middle.reshape(12, 2, 12, 2).mean(axis=(1, 3))
    assert np.corrcoef(shrunk.ravel(), whole.ravel())[0, 1] > 0.8


def test_a_view_to_the_right_is_the_front_ones_right_half(make_env: MakeEnv) -> None:
    aside = NarrowConfig(yaw_deg=30.0, fov_deg=100.0, pitch_deg=-12.0)
    env = make_env(EnvironmentConfig(camera=CameraConfig(narrow=aside)))
    front, right = env.reset(seed=1)[0]["image"][:2].astype(float)
    # 30° aside is 20 of 42 pixels from the middle, so what was there is in the middle now.
    there, here, else_where = front[30:54, 54:70], right[30:54, 34:50], right[30:54, 4:20]
    alike = [np.corrcoef(there.ravel(), each.ravel())[0, 1] for each in (here, else_where)]
    assert alike[0] > 0.6
    assert alike[0] > alike[1]
