"""The drivers of evaluations: the trained policy, and those to compare it with, from standing still to the expert.

Owns the ``Driver`` protocol of evaluation and video, and the drivers' names. Knows no simulator: a driver gets an
observation and the car's state on its route. Only the expert's constructor also takes a function for the hazards ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from carla_run.exits import Exit
from carla_td3.config import ActionRateConfig, AgentConfig
from carla_td3.env.expert import Action, Expert, PidPurePursuit
from carla_td3.env.hazards import Hazards
from carla_td3.env.observation import DriverState, Frames, Observation
from carla_td3.env.route_line import Route
from carla_td3.exits import AgentError
from carla_td3.seeding import Purpose, counter, derived_seed, generator
from carla_td3.td3.exploration import GaussianNoise
from carla_td3.td3.networks import Policy

TD3_DRIVER = "td3"
# Experimental controls: the same policy without a useful picture. A driver that drives equally well without it does not
# use its picture. (The reverse isn't certain: a driver that stands still without a picture may also ignore a real one.)
TD3_GREYED, TD3_SHUFFLED = "td3-greyed", "td3-shuffled"
BY_POLICY = (TD3_DRIVER, TD3_GREYED, TD3_SHUFFLED)
GREY, SHUFFLED_PICTURES = 128, 500
BASELINES = ("stop", "random", "pid")
EXPERT = "expert"
# Experimental control for smooth driving: the expert with a policy's exploration noise on its actions.
EXPERT_NOISY = "expert-noisy"
# For demonstrations. A driver that never leaves the middle of its lane never shows how to get back. A driver that never
# brakes late never shows how to do that (Codevilla et al. 2018; DART, Laskey et al. 2017). If the car always stands at
# red lights, an encoder learns that two equal frames mean red (de Haan et al. 2019). So at times the driver ignores
# hazards.
EXPERT_SHOVED = "expert-shoved"
Range = tuple[float, float]
SHOVED_EVERY_S = 6.0
"""Mean time between two disturbances of each kind: steering, pedal and attention."""
SHOVED_STEER: tuple[Range, Range] = (0.3, 0.8), (0.05, 0.2)
"""Range of durations in seconds, and of sizes as a share of the full range."""
SHOVED_PEDAL: tuple[Range, Range] = (0.5, 1.5), (0.3, 0.9)
LAPSE: tuple[Range, Range] = (0.5, 2.5), (1.0, 1.0)
"""Range of durations of a lapse of attention, in seconds. Its size is always 1: the pedal ignores all hazards."""
SHOVED_FROM_MPS = 2.0
"""Below this speed pedals aren't disturbed. A disturbed pedal moves a waiting car over the stop line: 39 of 82 such
drives ended at a red light, and only one step in 67 showed how to start at a green light.
"""
EXPERTS = (EXPERT, EXPERT_NOISY, EXPERT_SHOVED)


class Driver(Protocol):
    """Turns an observation into an action (2,) float32 in [-1, 1]: steering, throttle or brake."""

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the action for this step."""
        ...


class StopDriver:
    """Stands still with the brake on: a baseline that a reward must not favour."""

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return full brake."""
        return np.array((0.0, -1.0), np.float32)


class RandomDriver:
    """Uniform, independent actions, like TD3's untrained exploration. Throttle and brake cancel, so it hardly moves."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return any action."""
        return self._rng.uniform(-1.0, 1.0, 2).astype(np.float32)


class PolicyDriver:
    """Encoder and actor, deterministic."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return the policy's action. Only a policy trained on privileged numbers uses them."""
        return self._policy.act(observation["image"], observation["vector"], observation.get("privileged"))


class GreyedDriver:
    """A driver that sees a grey picture."""

    def __init__(self, other: Driver) -> None:
        self._other = other

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action for a grey picture."""
        return self._other.act({**observation, "image": np.full_like(observation["image"], GREY)}, state)


class ShuffledDriver:
    """A driver that sees a random one of its recent pictures."""

    def __init__(self, other: Driver, rng: np.random.Generator) -> None:
        self._other = other
        self._rng = rng
        self._pictures: deque[Frames] = deque(maxlen=SHUFFLED_PICTURES)

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action for another picture."""
        self._pictures.append(observation["image"])
        shown = self._pictures[int(self._rng.integers(len(self._pictures)))]
        return self._other.act({**observation, "image": shown}, state)


class NoisyDriver:
    """A driver with noise on its actions."""

    def __init__(self, other: Driver, noise: GaussianNoise) -> None:
        self._other = other
        self._noise = noise

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action with noise."""
        return self._noise(self._other.act(observation, state))


class ShovedDriver:
    """A driver whose steering and pedal are disturbed now and then, and that sometimes doesn't look.

    Args:
        blind: controls the pedal during a lapse of attention, as long as the car moves.
        actuators: limits of the car's steering and pedals; the defaults if None.
    """

    def __init__(
        self,
        other: Driver,
        blind: Driver,
        delta_s: float,
        rng: np.random.Generator,
        actuators: ActionRateConfig | None = None,
    ) -> None:
        self._other, self._blind = other, blind
        self._range = (actuators or ActionRateConfig()).steer_range
        self._steer, self._pedal, self._lapse = (
            _Disturbance(delta_s, rng, *of) for of in (SHOVED_STEER, SHOVED_PEDAL, LAPSE)
        )

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action with disturbances."""
        steer, pedal = self._other.act(observation, state)
        steer_error, pedal_error, lapse = self._steer.next(), self._pedal.next(), self._lapse.next()
        if state.speed_mps < SHOVED_FROM_MPS:
            pedal_error = 0.0
        elif lapse:
            pedal = self._blind.act(observation, state)[1]
        pulled = np.array((steer + steer_error / self._range, pedal + pedal_error), np.float32)
        return pulled.clip(-1.0, 1.0)


class _Disturbance:
    """A disturbance: constant for a moment, to either side, then none for a while."""

    def __init__(self, delta_s: float, rng: np.random.Generator, lasts_s: Range, strength: Range) -> None:
        self._delta_s, self._rng, self._lasts_s, self._strength = delta_s, rng, lasts_s, strength
        self._left_s = self._pull = 0.0

    def next(self) -> float:
        """Return the disturbance of the next step."""
        self._left_s -= self._delta_s
        if self._left_s <= 0.0:
            self._pull = 0.0
            if self._rng.random() < self._delta_s / SHOVED_EVERY_S:
                self._left_s = self._rng.uniform(*self._lasts_s)
                self._pull = self._rng.choice((-1.0, 1.0)) * self._rng.uniform(*self._strength)
        return self._pull


def compared(config: AgentConfig) -> tuple[str, ...]:
    """Return the default drivers to compare a trained one with. Only a policy that sees pictures has a grey control."""
    return (TD3_GREYED, *BASELINES) if config.td3.network.sees == "image" else BASELINES


def require_driver(name: str, policy: Policy | None) -> None:
    """Check that there is a driver of this name.

    Raises:
        AgentError: there is none, or it needs a policy and there is none.
    """
    if name in BY_POLICY:
        missing = "needs --checkpoint or --pretrained" if policy is None else ""
    else:
        known = (*BY_POLICY, *BASELINES, *EXPERTS)
        missing = "" if name in known else f"is unknown, expected one of {', '.join(known)}"
    if missing:
        raise AgentError(f"Driver {name!r} {missing}.", Exit.USAGE)


class PerDriveDriver:
    """A driver that is made anew for each drive, so that no drive depends on the drives before it.

    So an evaluation that was interrupted, or lost its simulator, drives as one that was not. Each drive has a ``Route``
    of its own.

    Args:
        make: returns the driver of a drive on this route.
    """

    def __init__(self, make: Callable[[Route], Driver]) -> None:
        self._make = make
        self._route: Route | None = None

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the action of this drive's driver."""
        if state.route is not self._route:
            self._route, self._own = state.route, self._make(state.route)
        return self._own.act(observation, state)


def evaluated(name: str, policy: Policy | None, config: AgentConfig, ahead: Callable[[], Hazards]) -> Driver:
    """Return the driver of this name, made anew for each drive, with random numbers by the route's name.

    Args, Raises: see ``driver``.
    """
    require_driver(name, policy)
    return PerDriveDriver(lambda route: driver(name, policy, config, ahead, counter(route.name)))


def driver(
    name: str, policy: Policy | None, config: AgentConfig, ahead: Callable[[], Hazards], number: int = 0
) -> Driver:
    """Return the driver of this name.

    Args:
        ahead: returns the hazards on the route ahead in the newest frame; only the expert gets it.
        number: of the driver's random numbers, with the configuration's seed.

    Raises:
        AgentError: see ``require_driver``.
    """
    require_driver(name, policy)
    target_mps, actuators = config.environment.reward.target_speed_mps, config.environment.action_rate
    delta_s, rng = config.simulator.fixed_delta_s, generator(config.seed, Purpose.EVALUATION, number)
    noise = GaussianNoise(config.td3.exploration_noise, derived_seed(config.seed, Purpose.EVALUATION, number))
    pid, expert = PidPurePursuit(target_mps, actuators=actuators), Expert(target_mps, delta_s, ahead, actuators)
    drivers: dict[str, Driver] = {
        "stop": StopDriver(),
        "random": RandomDriver(rng),
        "pid": pid,
        EXPERT: expert,
        EXPERT_NOISY: NoisyDriver(expert, noise),
        EXPERT_SHOVED: ShovedDriver(expert, pid, delta_s, rng, actuators),
    }
    if policy is not None:
        own = PolicyDriver(policy)
        drivers |= {TD3_DRIVER: own, TD3_GREYED: GreyedDriver(own), TD3_SHUFFLED: ShuffledDriver(own, rng)}
    return drivers[name]
