"""Drives a driver over a list of routes, step by step.

Owns what happens if the simulator is lost on a route or a start is taken, and the seed of each route's traffic. Writes
no replay, draws no route.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Action
from carla_td3.env.observation import Observation
from carla_td3.env.route_line import Route
from carla_td3.env.session import BlockedStart, SimulatorLost
from carla_td3.evaluation.drivers import Driver
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import Evaluation, RouteResult, Tally, limit_s
from carla_td3.seeding import Purpose, counter, derived_seed

LOSSES_A_ROUTE = 3
ROUNDS = 3
"""Tries for a route whose start is taken; between two tries the other routes are driven."""


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that pauses before each call into the simulator and returns a T; it can be abandoned at any pause."""


def completed(work: Steps[T]) -> T:
    """Run all of it and return its result."""
    found = completed_unless(work, lambda: False)
    assert found is not None
    return found


def completed_unless(work: Steps[T], stopped: Callable[[], bool]) -> T | None:
    """Run all of it and return its result; None if a stop was asked for between two of its steps."""
    with contextlib.closing(work):
        while not stopped():
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
    return None


def evaluate(
    env: DrivingEnv,
    driver: Driver,
    routes: Sequence[Route],
    name: str,
    seed: int = 0,
    kept: KeptDrives | None = None,
) -> Steps[Evaluation]:
    """Drive every route once and return the figures; a route lost with the simulator is repeated.

    A route whose start is taken is tried again after the others, and is named if it is taken each time. Cars,
    pedestrians and weather of a route are the same for every driver, so that differences between drivers are paired.

    Args:
        env: the environment itself (``gymnasium.make(...).unwrapped``).
        name: of the driver, for tables.
        seed: the routes' seed. With a route's name it gives the seed of the route's traffic.
        kept: gets each drive; a route that it already has isn't driven again.

    Raises:
        BlockedStart: no route's start was ever free.
        NoSimulator: the simulator is gone for longer than its patience.
        RuntimeError: one route lost the simulator ``LOSSES_A_ROUTE`` times.
    """
    driven = {} if kept is None else kept.of(name)
    results = {number: driven[route.name] for number, route in enumerate(routes) if route.name in driven}
    for _ in range(ROUNDS):
        for number in [number for number in range(len(routes)) if number not in results]:
            try:
                met = traffic_seed(seed, routes[number])
                results[number] = yield from drive_again_if_lost(env, driver, routes[number], met)
                if kept is not None:
                    kept.add(name, results[number])
            except BlockedStart as blocked:
                last = blocked
    if routes and not results:
        raise last
    left = tuple(route.name for number, route in enumerate(routes) if number not in results)
    return Evaluation(name, env.planner.name, seed, tuple(results[number] for number in sorted(results)), left)


def traffic_seed(seed: int, route: Route) -> int:
    """Return the seed of the cars, pedestrians and weather on this route, the same for every driver."""
    return derived_seed(seed, Purpose.EVALUATION, counter(route.name))


@dataclass(frozen=True)
class DriveStep:
    """An action and its result."""

    action: Action
    observation: Observation
    reward: float
    info: dict[str, Any]


def steps(env: DrivingEnv, driver: Driver, begun: tuple[Observation, dict[str, Any]]) -> Iterator[DriveStep]:
    """Drive to the end, and yield each step.

    Args:
        begun: result of ``env.reset``.

    Raises:
        SimulatorLost: the simulator was lost on the way.
    """
    observation, info = begun
    while info["end"] is None:
        action = driver.act(observation, env.state)
        observation, reward, _, _, info = env.step(action)
        if info["simulator_lost"]:
            raise SimulatorLost(env.loss)
        yield DriveStep(action, observation, reward, info)


def drive(env: DrivingEnv, driver: Driver, route: Route, seed: int | None = None) -> Steps[RouteResult]:
    """Drive one route within NoCrash's time, continuing after infractions.

    Args:
        seed: for cars, pedestrians and weather; None keeps the present ones.

    Raises:
        SimulatorLost: the simulator was lost on the way.
    """
    yield
    own = copy.copy(route)  # a driver tells by it that a drive begins, also when it drives the same route again
    options: dict[str, Any] = {"route": own, "limit_s": limit_s(route.length_m), "continue_after_infractions": True}
    begun = env.reset(options=options if seed is None else {**options, "seed": seed})
    tally = Tally()
    yield
    for step in steps(env, driver, begun):
        tally.add(step.reward, step.info["jerk_mps3"])
        if step.info["end"] is None:
            yield
    return tally.result(route, step.info, env.session.config.fixed_delta_s)


def drive_again_if_lost(env: DrivingEnv, driver: Driver, route: Route, seed: int | None = None) -> Steps[RouteResult]:
    """Drive one route, as ``drive`` does, and again if the simulator is lost on the way.

    Raises:
        RuntimeError: it is lost ``LOSSES_A_ROUTE`` times.
    """
    for _ in range(LOSSES_A_ROUTE):
        with contextlib.suppress(SimulatorLost):
            return (yield from drive(env, driver, route, seed))
    raise RuntimeError(
        f"The simulator at {env.session.address} was lost {LOSSES_A_ROUTE} times on route {route.name}: see its log."
    )
