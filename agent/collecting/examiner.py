"""The evaluations of a training run: rehearsed before training, driven when ordered, in the collector's environment.

Owns the held-out routes (drawn once a map), the choice of drivers, the results' files and the film. Writes no replay
and draws nothing from training's random state.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from agent.collecting.watched import WatchedEnv
from agent.config import AgentConfig
from agent.env.observation import FRAMES, VECTOR_SIZE
from agent.env.route import Planner, Route
from agent.exchange.messages import Evaluate, Evaluated, Rehearsed
from agent.exchange.status import Status
from agent.judging import assessment, visual
from agent.judging.assessment import BASELINES, TD3_DRIVER, PolicyDriver, driver
from agent.judging.evaluation import Evaluation, table, write_csv, write_json
from agent.judging.visual import VideoSummary
from agent.td3.networks import Policy
from contract.heartbeat import CollectorState
from contract.paths import RunPaths
from contract.processes import held_mib

WATCHABLE_M = 50.0
TABLE_COLUMNS = 120


class Examiner:
    """Examines one policy, which its owner keeps new."""

    def __init__(self, config: AgentConfig, run: RunPaths, env: WatchedEnv, policy: Policy, status: Status) -> None:
        self._config = config
        self._run = run
        self._env = env
        self._policy = policy
        self._status = status
        self._routes: list[Route] = []
        self._planner: Planner | None = None

    @property
    def expected(self) -> bool:
        """Whether the run has evaluations at all."""
        return self._most > 0

    @property
    def _most(self) -> int:
        """Routes of the largest evaluation to come."""
        settings = self._config.evaluation
        return max(settings.episodes if settings.every_steps > 0 else 0, settings.final_episodes)

    def rehearse(self) -> Rehearsed:
        """Allocate what evaluations need beyond driving, and say what that is; the simulator takes no step.

        Raises:
            NoSimulator, ConfigError: see ``Session.connect``.
            RouteError: the map has too few held-out routes for the evaluations to come.
        """
        self._status.state = CollectorState.REHEARSING
        self._env.connect()
        before_mib = held_mib(os.getpid())
        side = self._config.environment.camera.width
        self._policy.act(np.zeros((FRAMES, side, side), np.uint8), np.zeros(VECTOR_SIZE, np.float32))
        routes = self._held_out(self._most)
        _text(())
        encoder_mib = visual.rehearse(1.0 / self._config.simulator.fixed_delta_s) if self._films else None
        after_mib = held_mib(os.getpid())
        return Rehearsed(before_mib=before_mib, after_mib=after_mib, encoder_mib=encoder_mib, routes=len(routes))

    def evaluate(self, order: Evaluate) -> Evaluated:
        """Drive the held-out routes and say how it went; a final one also writes files, and films."""
        self._status.state = CollectorState.EVALUATING
        settings = self._config.evaluation
        self._env.connect()
        routes = self._held_out(settings.final_episodes if order.final else settings.episodes)
        names = (TD3_DRIVER, *(BASELINES if order.final and settings.baselines else ()))
        found = assessment.assess(self._env, self._config, self._policy, names, routes)
        if order.final:
            write_json(found, self._run.evaluation_json)
            write_csv(found, self._run.evaluation_csv)
        film = self._film(routes) if order.final and self._films else None
        return Evaluated(
            step=order.step,
            final=order.final,
            totals={each.name: assessment.scalars(each) for each in found},
            score=assessment.score(found[0]),
            table=_text(found),
            collector_mib=held_mib(os.getpid()),
            encoder_mib=None if film is None else film.encoder_mib,
            video=None if film is None else str(film.path.relative_to(self._run.path)),
        )

    @property
    def _films(self) -> bool:
        return self._config.evaluation.video and self._config.evaluation.final_episodes > 0

    def _held_out(self, count: int) -> list[Route]:
        """Return the first so many routes of the map; a new simulator may bring a new one."""
        if self._env.planner is not self._planner:
            self._routes = assessment.routes_to_judge_by(self._env, self._config, self._most)
            self._planner = self._env.planner
        return self._routes[:count]

    def _film(self, routes: Sequence[Route]) -> VideoSummary:
        """Film the trained driver; where it hardly moves, also one that does, so that there is something to watch."""
        self._status.state = CollectorState.RECORDING
        film = visual.record(self._env, PolicyDriver(self._policy), routes, self._run.videos / f"{TD3_DRIVER}.mp4")
        if film.metres < WATCHABLE_M:
            visual.record(self._env, driver("pid", None, self._config), routes, self._run.videos / "pid.mp4")
        return film


def _text(found: Sequence[Evaluation]) -> str:
    """Return the table as text: the learner, which has the terminal, can't import what makes it."""
    page = Console(file=io.StringIO(), width=TABLE_COLUMNS)
    with page.capture() as capture:
        page.print(table(found))
    return capture.get()
