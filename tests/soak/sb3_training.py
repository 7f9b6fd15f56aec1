"""A training as users of Stable-Baselines3 write it: its algorithm, its callback for checkpoints, and nothing of ours.

It drives the gymnasium environment, and saves networks every so many steps; Stable-Baselines3's replay isn't saved.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import CheckpointCallback

import carla_td3.env  # noqa: F401 (registers the environment)

TASK = {"time_limit": {"constant_s": 2}, "route": {"min_length_m": 60, "max_length_m": 150}}
SIZES: dict[str, Any] = {"batch_size": 4, "buffer_size": 500, "learning_starts": 20, "train_freq": 4, "verbose": 1}


def main() -> None:
    """Train, from a checkpoint on if one is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--load", default="")
    given = parser.parse_args()
    env = gymnasium.make("CarlaTD3/Driving-v0", config=TASK, simulator={"port": given.port, "timeout_s": 5})
    model = TD3.load(given.load, env) if given.load else TD3("MultiInputPolicy", env, **SIZES)
    saves = CheckpointCallback(given.every, "checkpoints")
    model.learn(given.steps - model.num_timesteps, saves, log_interval=1, reset_num_timesteps=False)
    model.save("model.zip")


if __name__ == "__main__":
    main()
