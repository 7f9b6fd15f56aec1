"""Held-out routes, and a driver on them.

Owns which routes drivers are compared on, and what becomes of one that is lost with the simulator or whose start is
taken. Writes no replay, draws no training route.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import AgentConfig
from agent.env.driving import DrivingEnv
from agent.env.route import Route, held_out_routes
from agent.env.session import BlockedStart
from agent.evaluation.drivers import Driver
from agent.evaluation.metrics import Evaluation, RouteResult, Tally

LOSSES_A_ROUTE = 3
ROUNDS = 3
"""How often a route is tried whose start is taken; between two tries the others are driven."""


def held_out(env: DrivingEnv, config: AgentConfig, count: int, min_turns: int | None = None) -> list[Route]:
    """Return the held-out routes of this configuration: the same ones every time, for every driver.

    Raises:
        RouteError: the map doesn't have that many.
    """
    turns = config.evaluation.min_turns if min_turns is None else min_turns
    return held_out_routes(env.planner, config.environment.route, count, config.seed, turns)


def evaluate(env: DrivingEnv, driver: Driver, routes: Sequence[Route], name: str, seed: int = 0) -> Evaluation:
    """Drive every route once and return the figures; a route lost with the simulator is repeated.

    A route whose start is taken comes once more after the others, and is named if it is taken each time.

    Args:
        env: the environment itself (``gymnasium.make(...).unwrapped``).
        name: of the driver, for tables.
        seed: that the routes were drawn with; noted in the result, nothing is drawn here.

    Raises:
        BlockedStart: of no route was the start ever free.
        NoSimulator: the simulator is gone for longer than its patience.
        RuntimeError: one route lost the simulator ``LOSSES_A_ROUTE`` times.
    """
    results: dict[int, RouteResult] = {}
    for _ in range(ROUNDS):
        for number in [number for number in range(len(routes)) if number not in results]:
            try:
                results[number] = _drive_again_if_lost(env, driver, routes[number])
            except BlockedStart as blocked:
                last = blocked
    if routes and not results:
        raise last
    left = tuple(route.name for number, route in enumerate(routes) if number not in results)
    return Evaluation(name, env.planner.name, seed, tuple(results[number] for number in sorted(results)), left)


def drive(env: DrivingEnv, driver: Driver, route: Route) -> RouteResult | None:
    """Drive one route; None if the simulator was lost on the way."""
    observation, info = env.reset(options={"route": route})
    tally = Tally()
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(driver.act(observation, env.state))
        tally.add(reward, info["jerk_mps3"])
        over = terminated or truncated
    return None if info["simulator_lost"] else tally.result(route, info, env.session.config.fixed_delta_s)


def _drive_again_if_lost(env: DrivingEnv, driver: Driver, route: Route) -> RouteResult:
    for _ in range(LOSSES_A_ROUTE):
        result = drive(env, driver, route)
        if result is not None:
            return result
    raise RuntimeError(
        f"The simulator at {env.session.address} was lost {LOSSES_A_ROUTE} times on route {route.name}: see its log."
    )
