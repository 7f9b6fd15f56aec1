"""Compares drivers on the same held-out routes and films them, for a run's evaluations and for the command.

Owns the choice of routes, drawn once per map. Writes no replay, and draws nothing from training's random state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carla_td3.config import AgentConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Planner, Route, held_out_routes
from carla_td3.evaluation import video
from carla_td3.evaluation.drivers import Driver, evaluated
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import Evaluation
from carla_td3.evaluation.routes import Steps, evaluate
from carla_td3.evaluation.video import VideoSummary
from carla_td3.td3.networks import Policy


def _alone(name: str, driver: Driver) -> Driver:  # noqa: ARG001 (a ``beside``)
    return driver


class EvaluationRunner:
    """Evaluates in one environment.

    Args:
        config: of the run or the command.
        env: is used, never closed.
        policy: the trained policy; its owner may change it between two calls. None without one.
        count: held-out routes to draw.
        min_turns: least number of junction turns per route; None for ``evaluation.min_turns``.
    """

    def __init__(
        self, config: AgentConfig, env: DrivingEnv, policy: Policy | None, count: int, min_turns: int | None = None
    ) -> None:
        self._config = config
        self._env = env
        self._policy = policy
        self._count = count
        self._min_turns = config.evaluation.min_turns if min_turns is None else min_turns
        self._routes: list[Route] = []
        self._planner: Planner | None = None

    def routes(self) -> list[Route]:
        """Return the held-out routes of the simulator's map, the same ones every time; connects if needed.

        Raises:
            NoSimulator, ConfigError: see ``Session.connect``.
            RouteError: the map doesn't have that many.
        """
        planner = self._env.planner
        if planner is not self._planner:  # a new simulator may bring another map
            route, seed = self._config.environment.route, self._config.seed
            self._routes = held_out_routes(planner, route, self._count, seed, self._min_turns)
            self._planner = planner
        return self._routes

    def compare(
        self,
        names: Sequence[str],
        routes: Sequence[Route],
        beside: Callable[[str, Driver], Driver] = _alone,
        kept: KeptDrives | None = None,
    ) -> Steps[list[Evaluation]]:
        """Let each driver drive the same routes and return the figures, in the given order.

        Args:
            beside: wraps a driver so that it is observed, see ``observed_driver``.
            kept: see ``evaluate``.

        Raises:
            AgentError: there is no such driver, or ``td3`` without a policy.
            NoSimulator, BlockedStart, RuntimeError: see ``evaluate``.
        """
        drivers = [(name, beside(name, self._driver(name))) for name in names]
        found = []
        for name, each in drivers:
            found.append((yield from evaluate(self._env, each, routes, name, self._config.seed, kept)))
        return found

    def film(self, name: str, routes: Sequence[Route], path: Path, **limits: Any) -> Steps[VideoSummary]:
        """Film a driver on some routes; ``limits`` and errors as of ``video.record``."""
        return video.record(self._env, self._driver(name), routes, path, **limits)

    def _driver(self, name: str) -> Driver:
        return evaluated(name, self._policy, self._config, lambda: self._env.hazards)
