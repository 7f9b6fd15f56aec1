"""The evaluations of a training run: rehearsed before training, driven when ordered, in the collector's environment.

Owns how many routes and which drivers an order means, the result files and the video.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console

from carla_run.heartbeat import CollectorState
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.env import observation
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Route
from carla_td3.env.route_line import OtherMap
from carla_td3.evaluation import video
from carla_td3.evaluation.drivers import TD3_DRIVER, Driver, compared
from carla_td3.evaluation.metrics import Evaluation, table, write_csv, write_json
from carla_td3.evaluation.observed_driver import Album, ObservedDriver
from carla_td3.evaluation.routes import Steps
from carla_td3.evaluation.runner import EvaluationRunner
from carla_td3.evaluation.video import VideoSummary
from carla_td3.exchange.messages import Driving, Evaluate, Evaluated, Rehearsed
from carla_td3.exchange.status import Status
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.layout import privileged_numbers

WATCHABLE_M = 50.0
TABLE_COLUMNS = 80


class RunEvaluations:
    """Evaluates one policy, whose weights its owner updates; ``say`` is called as each route begins."""

    def __init__(
        self,
        config: AgentConfig,
        run: RunPaths,
        env: DrivingEnv,
        policy: Policy,
        status: Status,
        say: Callable[[Driving], None],
    ) -> None:
        self._config, self._settings = config, config.evaluation
        self._run, self._say = run, say
        self._env = env
        self._policy = policy
        self._status = status
        periodic = self._settings.episodes if self._settings.every_steps > 0 else 0
        self._most = max(periodic, self._settings.final_episodes)
        self._runner = EvaluationRunner(config, env, policy, self._most)

    @property
    def expected(self) -> bool:
        """Whether the run has evaluations at all."""
        return self._most > 0

    def rehearse(self) -> Steps[Rehearsed]:
        """Allocate the memory that evaluations need beyond driving, and return how much that is; the simulator takes no
        step.

        Raises:
            NoSimulator, ConfigError: see ``Session.connect``.
            RouteError: the map has too few held-out routes for the run's evaluations.
        """
        self._status.state = CollectorState.REHEARSING
        yield
        _ = self._env.planner  # connects
        before_mib = held_mib(os.getpid())
        seen = np.zeros(observation.image_shape(self._config.environment.camera), np.uint8)
        told = np.zeros(privileged_numbers(self._config.environment), np.float32)
        self._policy.act(seen, np.zeros(observation.VECTOR_SIZE, np.float32), told)
        routes = self._runner.routes()
        _text(())
        if self._settings.video and video.missing():
            print(video.missing(), flush=True)  # into the collector's log; the run continues without a video
        encoder_mib = video.rehearse(1.0 / self._config.simulator.fixed_delta_s) if self._films else None
        after_mib = held_mib(os.getpid())
        return Rehearsed(before_mib=before_mib, after_mib=after_mib, encoder_mib=encoder_mib, routes=len(routes))

    def evaluate(self, order: Evaluate) -> Steps[Evaluated]:
        """Drive the held-out routes and return the figures. A final evaluation also writes files and a video.

        It begins again if a new simulator has another map.
        """
        while True:
            with contextlib.suppress(OtherMap):
                return (yield from self._evaluated(order))

    def _evaluated(self, order: Evaluate) -> Steps[Evaluated]:
        self._status.state = CollectorState.EVALUATING
        yield
        routes = self._runner.routes()[: self._settings.final_episodes if order.final else self._settings.episodes]
        names = (TD3_DRIVER, *(compared(self._config) if order.final and self._settings.baselines else ()))
        album = Album(self._env)

        def told(driver: str, route: int) -> None:
            self._say(Driving(driver=driver, route=route, routes=len(routes)))

        def beside(name: str, driver: Driver) -> Driver:
            return ObservedDriver(name, driver, told, album if name == TD3_DRIVER else None)

        found = yield from self._runner.compare(names, routes, beside)
        if order.final:
            write_json(found, self._run.evaluation_json)
            write_csv(found, self._run.evaluation_csv)
        film = (yield from self._film(routes)) if order.final and self._films else None
        return Evaluated(
            step=order.step,
            final=order.final,
            totals={each.name: each.scalars() for each in found},
            score=found[0].score,
            table=_text(found),
            collector_mib=held_mib(os.getpid()),
            encoder_mib=None if film is None else film.encoder_mib,
            video=None if film is None else str(film.path.relative_to(self._run.path)),
            pictures=album.write(self._run.videos),
        )

    @property
    def _films(self) -> bool:
        return self._settings.video and self._settings.final_episodes > 0 and not video.missing()

    def _film(self, routes: Sequence[Route]) -> Steps[VideoSummary]:
        """Film the trained driver. If it hardly moves, also film one that does, so that there is something to watch."""
        self._status.state = CollectorState.RECORDING
        film = yield from self._runner.film(TD3_DRIVER, routes, self._run.videos / f"{TD3_DRIVER}.mp4")
        if film.metres < WATCHABLE_M:
            yield from self._runner.film("pid", routes, self._run.videos / "pid.mp4")
        return film


def _text(found: Sequence[Evaluation]) -> str:
    """Return the table as text: the learner, which has the terminal, can't import what formats it."""
    page = Console(file=io.StringIO(), width=TABLE_COLUMNS)
    with page.capture() as capture:
        page.print(table(found))
    return capture.get()
