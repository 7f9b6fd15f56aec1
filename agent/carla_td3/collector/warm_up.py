"""The actions of the warm-up, before there is a useful policy."""

from __future__ import annotations

import math

import numpy as np

from carla_td3.config import EnvironmentConfig
from carla_td3.env.expert import MAX_STEER_RAD, WHEELBASE_M, Action
from carla_td3.env.observation import SPEED_SCALE_MPS, Vector


def warmup_action(rng: np.random.Generator, previous: Action, vector: Vector, environment: EnvironmentConfig) -> Action:
    """Return a random action that moves the car and keeps it on the road for a while.

    Independent uniform throttle and brake cancel (the car never moves, and the replay holds one picture); here the
    throttle is positive on average, the noise is correlated over about a second, and a third point of the route gives
    the steering its direction.

    Args:
        previous: the last action of this episode, zeros at its start.
        vector: the observation's (53,) vector.
        environment: gives the distance between route points and the largest wheel angle.
    """
    steer_range = environment.action_rate.steer_range
    speed = float(vector[0]) * SPEED_SCALE_MPS
    distance_m = 3.0 * environment.route.point_spacing_m
    forward, right = float(vector[7]) * distance_m, float(vector[8]) * distance_m
    reach_sq = max(forward * forward + right * right, 1.0)
    wanted = math.atan2(2.0 * WHEELBASE_M * right, reach_sq) / (steer_range * MAX_STEER_RAD)
    steer = wanted + 0.7 * (float(previous[0]) - wanted) + rng.normal(0.0, 0.12)
    mean_pedal = 0.5 if speed < 3.0 else 0.12 * (6.0 - speed)
    pedal = mean_pedal + 0.6 * (float(previous[1]) - mean_pedal) + rng.normal(0.0, 0.25)
    return np.clip((steer, pedal), -1.0, 1.0).astype(np.float32)
