"""Which drivers drive which routes: the evaluations of a training run and of ``python -m agent evaluate``.

Owns the choice of drivers, routes and score. The figures are ``agent.judging.evaluation``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import AgentConfig
from agent.env.driving import DrivingEnv
from agent.env.observation import DriverState, Observation
from agent.env.route import Route, held_out_routes
from agent.exchange.weights import FloatArray
from agent.exits import AgentError
from agent.judging.baselines import Driver, PidPurePursuit, RandomDriver, Stop
from agent.judging.evaluation import Evaluation, evaluate
from agent.seeding import Purpose, generator
from agent.td3.networks import Policy
from contract.exits import Exit

TD3_DRIVER = "td3"
BASELINES = ("stop", "random", "pid")


class PolicyDriver:
    """Encoder and actor, deterministic."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Observation, state: DriverState) -> FloatArray:  # noqa: ARG002 (the protocol's)
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


def assess(
    env: DrivingEnv, config: AgentConfig, policy: Policy | None, names: Sequence[str], routes: Sequence[Route]
) -> list[Evaluation]:
    """Let each driver drive the same routes and return the figures, in the given order."""
    drivers = [(name, driver(name, policy, config)) for name in names]
    return [evaluate(env, each, routes, name, config.seed) for name, each in drivers]


def routes_to_judge_by(env: DrivingEnv, config: AgentConfig, count: int, min_turns: int | None = None) -> list[Route]:
    """Return the held-out routes of this configuration: the same ones every time, for every driver.

    Raises:
        RouteError: the map doesn't have that many.
    """
    turns = config.evaluation.min_turns if min_turns is None else min_turns
    return held_out_routes(env.planner, config.environment.route, count, config.seed, turns)


def score(evaluation: Evaluation) -> float:
    """Return the figure by which checkpoints are compared: the mean driving score, 0 to 100."""
    return evaluation.totals()["driving_score"]


def scalars(evaluation: Evaluation) -> dict[str, float]:
    """Return an evaluation's totals for TensorBoard, with Stable-Baselines3's names where it has them."""
    totals = evaluation.totals()
    steps = sum(route.steps for route in evaluation.routes)
    return {
        **{name: value for name, value in totals.items() if name not in ("routes", "reward", "success")},
        "mean_reward": totals["reward"],
        "success_rate": totals["success"],
        "mean_ep_length": steps / max(1, len(evaluation.routes)),
    }
