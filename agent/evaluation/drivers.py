"""The drivers of evaluations: the trained policy, and three to compare it with (stop, random, PID with pure pursuit).

Owns the ``Driver`` protocol that evaluation and video speak, and the drivers' names. Knows no simulator: a driver sees
an observation and the car's state on its route.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agent.config import AgentConfig
from agent.env.observation import DriverState, Observation
from agent.exits import AgentError
from agent.seeding import Purpose, generator
from agent.td3.networks import Policy
from contract.exits import Exit

TD3_DRIVER = "td3"
BASELINES = ("stop", "random", "pid")

Action = NDArray[np.float32]

# CARLA's Tesla Model 3: steering 1 turns the front wheels by this much; the distance between its axles.
MAX_STEER_RAD, WHEELBASE_M = math.radians(70.0), 2.875


class Driver(Protocol):
    """Whatever turns what is seen into an action (2,) float32 in [-1, 1]: steering, throttle or brake."""

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the action for this step."""
        ...


class Stop:
    """Stands still with the brake on: what a reward must not pay for."""

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return full brake."""
        return np.array((0.0, -1.0), np.float32)


class RandomDriver:
    """Uniform, independent actions: TD3's untrained exploration. Throttle and brake cancel, so it hardly moves."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return any action."""
        return self._rng.uniform(-1.0, 1.0, 2).astype(np.float32)


class PidPurePursuit:
    """Steers to a point of the route ahead, and slows down in time for its curves.

    Pure pursuit (Coulter 1992) with a look-ahead that grows with speed; a PI controller on the speed that the
    route's curvature allows within braking distance.

    Args:
        target_mps: speed on straight road.
        lateral_mps2: comfortable acceleration in curves.
        braking_mps2: comfortable deceleration before them.
    """

    def __init__(self, target_mps: float = 8.0, lateral_mps2: float = 2.0, braking_mps2: float = 2.0) -> None:
        self._target = target_mps
        self._lateral = lateral_mps2
        self._braking = braking_mps2
        self._integral = 0.0

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return steering towards the look-ahead point, and the pedal for the allowed speed."""
        if state.place.s_m < 1.0:
            self._integral = 0.0  # a new route
        return np.array((self._steer(state), self._pedal(state)), np.float32)

    def _steer(self, state: DriverState) -> float:
        reach = min(max(2.0 + 0.5 * state.speed_mps, 3.0), 10.0)
        (x, y), *_ = state.route.ahead(state.place.s_m, 1, reach)
        bearing = math.atan2(y - state.y_m, x - state.x_m) - state.yaw
        # The rear axle is what follows the arc; it lies half a wheelbase behind the car's origin.
        distance = math.hypot(x - state.x_m, y - state.y_m) + WHEELBASE_M / 2.0
        if state.route.length_m - state.place.s_m < reach:
            bearing = state.place.yaw - state.yaw  # past the end there is no point to pursue
        angle = math.atan2(2.0 * WHEELBASE_M * math.sin(bearing), distance)
        return min(1.0, max(-1.0, angle / MAX_STEER_RAD))

    def _pedal(self, state: DriverState) -> float:
        error = self._allowed(state) - state.speed_mps
        self._integral = min(1.0, max(-1.0, self._integral + 0.02 * error))
        pedal = 0.25 * error + 0.3 * self._integral
        return min(0.75, max(-1.0, pedal))

    def _allowed(self, state: DriverState) -> float:
        """Return the speed from which every curve ahead can still be slowed down for."""
        route, s_m = state.route, state.place.s_m
        first = int(np.searchsorted(route.s, s_m))
        last = int(np.searchsorted(route.s, s_m + 5.0 + self._target**2 / (2.0 * self._braking)))
        bends = np.abs(route.curvature[first:last])
        distance = np.maximum(route.s[first:last] - s_m - 1.0, 0.0)
        square = self._lateral / np.maximum(bends, 1e-3) + 2.0 * self._braking * distance
        return min(self._target, math.sqrt(float(square.min(initial=self._target**2))))


class PolicyDriver:
    """Encoder and actor, deterministic."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return the policy's action."""
        return self._policy.act(observation["image"], observation["vector"])


def driver(name: str, policy: Policy | None, config: AgentConfig) -> Driver:
    """Return the driver of this name.

    Raises:
        AgentError: there is no such driver, or ``td3`` without a policy.
    """
    if name == TD3_DRIVER and policy is not None:
        return PolicyDriver(policy)
    if name == "stop":
        return Stop()
    if name == "random":
        return RandomDriver(generator(config.seed, Purpose.EVALUATION, 0))
    if name == "pid":
        return PidPurePursuit(config.environment.reward.target_speed_mps)
    known = ", ".join((TD3_DRIVER, *BASELINES))
    missing = "needs --checkpoint" if name == TD3_DRIVER else f"is unknown, expected one of {known}"
    raise AgentError(f"Driver {name!r} {missing}.", Exit.USAGE)
