"""A driver on a list of routes, a step at a time.

Owns what becomes of a route that is lost with the simulator, or whose start is taken, and whom a route's drive meets.
Writes no replay, draws no route.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Route
from carla_td3.env.session import BlockedStart
from carla_td3.evaluation.drivers import Driver
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import Evaluation, RouteResult, Tally, limit_s
from carla_td3.seeding import Purpose, derived_seed

LOSSES_A_ROUTE = 3
ROUNDS = 3
"""How often a route is tried whose start is taken; between two tries the others are driven."""


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that pauses before each call into the simulator and returns a T: it can be left at any pause."""


def completed(work: Steps[T]) -> T:
    """Do all of it and return what it returns."""
    found = completed_unless(work, lambda: False)
    assert found is not None
    return found


def completed_unless(work: Steps[T], stopped: Callable[[], bool]) -> T | None:
    """Do all of it and return what it returns; None where a stop was asked for between two of its steps."""
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

    A route whose start is taken comes once more after the others, and is named if it is taken each time. Cars, people
    and weather of a route are the same for every driver, so that differences between drivers are paired.

    Args:
        env: the environment itself (``gymnasium.make(...).unwrapped``).
        name: of the driver, for tables.
        seed: that the routes were drawn with; of it and the route's name are the others whom its drive meets.
        kept: gets each drive; a route that it has already isn't driven again.

    Raises:
        BlockedStart: of no route was the start ever free.
        NoSimulator: the simulator is gone for longer than its patience.
        RuntimeError: one route lost the simulator ``LOSSES_A_ROUTE`` times.
    """
    driven = {} if kept is None else kept.of(name)
    results = {number: driven[route.name] for number, route in enumerate(routes) if route.name in driven}
    for _ in range(ROUNDS):
        for number in [number for number in range(len(routes)) if number not in results]:
            try:
                met = met_seed(seed, routes[number])
                results[number] = yield from drive_again_if_lost(env, driver, routes[number], met)
                if kept is not None:
                    kept.add(name, results[number])
            except BlockedStart as blocked:
                last = blocked
    if routes and not results:
        raise last
    left = tuple(route.name for number, route in enumerate(routes) if number not in results)
    return Evaluation(name, env.planner.name, seed, tuple(results[number] for number in sorted(results)), left)


def met_seed(seed: int, route: Route) -> int:
    """Return the seed of the cars, people and weather that every driver meets on this route."""
    return derived_seed(seed, Purpose.EVALUATION, zlib.crc32(route.name.encode()))


def drive(env: DrivingEnv, driver: Driver, route: Route, seed: int | None = None) -> Steps[RouteResult | None]:
    """Drive one route within NoCrash's time, on after infractions; None if the simulator was lost on the way.

    Args:
        seed: of the cars, people and weather that the drive finds; None: those that are there.
    """
    yield
    options: dict[str, Any] = {"route": route, "limit_s": limit_s(route.length_m), "goes_on": True}
    observation, info = env.reset(options=options if seed is None else {**options, "seed": seed})
    tally = Tally()
    over = False
    while not over:
        yield
        observation, reward, terminated, truncated, info = env.step(driver.act(observation, env.state))
        tally.add(reward, info["jerk_mps3"])
        over = terminated or truncated
    return None if info["simulator_lost"] else tally.result(route, info, env.session.config.fixed_delta_s)


def drive_again_if_lost(env: DrivingEnv, driver: Driver, route: Route, seed: int | None = None) -> Steps[RouteResult]:
    """Drive one route, as ``drive`` does, and again if the simulator is lost on the way.

    Raises:
        RuntimeError: it is lost ``LOSSES_A_ROUTE`` times.
    """
    for _ in range(LOSSES_A_ROUTE):
        result = yield from drive(env, driver, route, seed)
        if result is not None:
            return result
    raise RuntimeError(
        f"The simulator at {env.session.address} was lost {LOSSES_A_ROUTE} times on route {route.name}: see its log."
    )
