"""The drivers of evaluations: the trained policy, and those to compare it with, from standing still to the expert.

Owns the ``Driver`` protocol that evaluation and video speak, and the drivers' names. Knows no simulator: a driver sees
an observation and the car's state on its route. The expert alone is given, when made, what lies ahead.
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
from carla_td3.exits import AgentError
from carla_td3.seeding import Purpose, derived_seed, generator
from carla_td3.td3.exploration import GaussianNoise
from carla_td3.td3.networks import Policy

TD3_DRIVER = "td3"
# Without what it sees: whoever drives as well so drives blind (but one that stands still then may be blind as well).
TD3_GREYED, TD3_SHUFFLED = "td3-greyed", "td3-shuffled"
BY_POLICY = (TD3_DRIVER, TD3_GREYED, TD3_SHUFFLED)
GREY, SHUFFLED_PICTURES = 128, 500
BASELINES = ("stop", "random", "pid")
EXPERT = "expert"
# How much of a difference is hands, not eyes: the expert with a policy's exploration noise on its actions.
EXPERT_NOISY = "expert-noisy"
# For demonstrations: who never leaves the lane's middle shows nobody the way back, nor how to brake late who never
# does (Codevilla et al. 2018; DART, Laskey et al. 2017). And whose car always stands where a light is red teaches an
# encoder to tell red by two equal frames (de Haan et al. 2019): so at times nobody looks.
EXPERT_SHOVED = "expert-shoved"
Range = tuple[float, float]
SHOVED_EVERY_S = 6.0
"""On average, wheel, foot and eyes each."""
SHOVED_WHEEL: tuple[Range, Range] = (0.3, 0.8), (0.05, 0.2)
"""How long, seconds; by how much of its way."""
SHOVED_FOOT: tuple[Range, Range] = (0.5, 1.5), (0.3, 0.9)
LAPSE: tuple[Range, Range] = (0.5, 2.5), (1.0, 1.0)
"""The same of a look elsewhere, which is whole."""
SHOVED_FROM_MPS = 2.0
"""A foot that is pulled while it waits rolls over the line: of 82 drives so shown 39 ended at a red light, and only one
step in 67 showed how to start at a green."""
EXPERTS = (EXPERT, EXPERT_NOISY, EXPERT_SHOVED)


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


class PolicyDriver:
    """Encoder and actor, deterministic."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return the policy's action; who isn't trained to see privileged numbers takes no notice of them."""
        return self._policy.act(observation["image"], observation["vector"], observation.get("privileged"))


class Greyed:
    """A driver whose picture is all grey."""

    def __init__(self, other: Driver) -> None:
        self._other = other

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return what the driver does without a picture."""
        return self._other.act({**observation, "image": np.full_like(observation["image"], GREY)}, state)


class Shuffled:
    """A driver that is shown any of the last pictures that it has had."""

    def __init__(self, other: Driver, rng: np.random.Generator) -> None:
        self._other = other
        self._rng = rng
        self._pictures: deque[Frames] = deque(maxlen=SHUFFLED_PICTURES)

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return what the driver does with another picture."""
        self._pictures.append(observation["image"])
        shown = self._pictures[int(self._rng.integers(len(self._pictures)))]
        return self._other.act({**observation, "image": shown}, state)


class Noisy:
    """A driver whose hand trembles."""

    def __init__(self, other: Driver, noise: GaussianNoise) -> None:
        self._other = other
        self._noise = noise

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action with noise."""
        return self._noise(self._other.act(observation, state))


class Shoved:
    """A driver whose wheel and foot are now and then pulled aside for a moment, and who doesn't look at times.

    Args:
        blind: has the pedal meanwhile, as long as the car moves.
        actuators: of the car; the defaults if None.
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
        self._wheel, self._foot, self._lapse = (_Pull(delta_s, rng, *of) for of in (SHOVED_WHEEL, SHOVED_FOOT, LAPSE))

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the driver's action, pulled."""
        steer, pedal = self._other.act(observation, state)
        wheel, foot, lapse = self._wheel.next(), self._foot.next(), self._lapse.next()
        if state.speed_mps < SHOVED_FROM_MPS:
            foot = 0.0
        elif lapse:
            pedal = self._blind.act(observation, state)[1]
        pulled = np.array((steer + wheel / self._range, pedal + foot), np.float32)
        return pulled.clip(-1.0, 1.0)


class _Pull:
    """Of the same strength for a moment, to either side, then none for a while."""

    def __init__(self, delta_s: float, rng: np.random.Generator, lasts_s: Range, strength: Range) -> None:
        self._delta_s, self._rng, self._lasts_s, self._strength = delta_s, rng, lasts_s, strength
        self._left_s = self._pull = 0.0

    def next(self) -> float:
        """Return a step's."""
        self._left_s -= self._delta_s
        if self._left_s <= 0.0:
            self._pull = 0.0
            if self._rng.random() < self._delta_s / SHOVED_EVERY_S:
                self._left_s = self._rng.uniform(*self._lasts_s)
                self._pull = self._rng.choice((-1.0, 1.0)) * self._rng.uniform(*self._strength)
        return self._pull


def compared(config: AgentConfig) -> tuple[str, ...]:
    """Return whom a trained driver stands beside, where nobody says more; only one with pictures can do without."""
    return (TD3_GREYED, *BASELINES) if config.td3.network.sees == "image" else BASELINES


def driver(name: str, policy: Policy | None, config: AgentConfig, ahead: Callable[[], Hazards]) -> Driver:
    """Return the driver of this name.

    Args:
        ahead: returns what lies on the route ahead in the newest frame; only the expert is given it.

    Raises:
        AgentError: there is no such driver, or one by a policy without any.
    """
    target_mps, actuators = config.environment.reward.target_speed_mps, config.environment.action_rate
    delta_s, rng = config.simulator.fixed_delta_s, generator(config.seed, Purpose.EVALUATION, 0)
    noise = GaussianNoise(config.td3.exploration_noise, derived_seed(config.seed, Purpose.EVALUATION, 0))
    pid, expert = PidPurePursuit(target_mps, actuators=actuators), Expert(target_mps, delta_s, ahead, actuators)
    drivers: dict[str, Driver] = {
        "stop": Stop(),
        "random": RandomDriver(rng),
        "pid": pid,
        EXPERT: expert,
        EXPERT_NOISY: Noisy(expert, noise),
        EXPERT_SHOVED: Shoved(expert, pid, delta_s, rng, actuators),
    }
    if policy is not None:
        own = PolicyDriver(policy)
        drivers |= {TD3_DRIVER: own, TD3_GREYED: Greyed(own), TD3_SHUFFLED: Shuffled(own, rng)}
    if name in drivers:
        return drivers[name]
    known = ", ".join((*BY_POLICY, *BASELINES, *EXPERTS))
    missing = "needs --checkpoint" if name in BY_POLICY else f"is unknown, expected one of {known}"
    raise AgentError(f"Driver {name!r} {missing}.", Exit.USAGE)
