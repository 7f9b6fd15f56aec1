"""All collectors of a run: their step limits, starting, reports, supervision, stopping.

Owns operations on all collectors at once. ``collector_supervisor`` handles one of them; ``shares`` divides seeds, rows
and steps.
"""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Sequence

from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.status import Pace, Status
from carla_td3.trainer.checkpoint_store import CheckpointStore
from carla_td3.trainer.collector_process import CollectorProcess
from carla_td3.trainer.collector_supervisor import CollectorSupervisor
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.remote import Cluster
from carla_td3.trainer.reporter import Reporter
from carla_td3.trainer.shares import CollectorProgress, step_limits

DRIVING = frozenset({CollectorState.STEPPING, CollectorState.WAITING, CollectorState.EVALUATING})
"""States of a collector that has its simulator."""


class Fleet:
    """The collectors of one run, numbered from 0; number 0 evaluates, while the others wait."""

    def __init__(
        self,
        config: AgentConfig,
        run: RunPaths,
        statuses: Sequence[Status],
        *,
        learner: Learner,
        store: CheckpointStore,
        reporter: Reporter,
    ) -> None:
        self._at_work = config.collectors_at_work
        self._statuses, self._learner = statuses, learner
        self._paces = [Pace.of(run.exchange, number) for number in range(len(statuses))]
        self._most = max(1, config.training.max_lead_steps // len(statuses))
        if len(statuses) > 1:  # status blocks of an earlier learner
            self.halt()
            for status in statuses:
                status.end_collector()
        self._grace_s = config.collector.stop_grace_s
        self._cluster = Cluster(config, run) if config.cluster.address else None
        launch = None if self._cluster is None else self._cluster.start
        self._supervisors = [
            CollectorSupervisor(
                *(config, run, CollectorProcess(config, run, status, number, launch), number),
                learner=learner,
                store=store,
                reporter=reporter,
                others_may_drive=functools.partial(self._others_may_drive, number),
            )
            for number, status in enumerate(statuses)
        ]

    def allow(self, steps: int) -> None:
        """Set the number of steps that the run may take."""
        standings = [
            CollectorProgress(own, pace.step_limit, status.state in DRIVING)
            for own, pace, status in zip(self._learner.collector_steps, self._paces, self._statuses, strict=True)
        ]
        limits = step_limits(steps - self._learner.steps_of_others, standings, self._most)
        for pace, limit in zip(self._paces, limits, strict=True):
            pace.step_limit = limit

    def halt(self) -> None:
        """Allow no further step."""
        for pace in self._paces:
            pace.step_limit = 0

    def start(self) -> None:
        """Start the active collectors."""
        for supervisor in self._supervisors[: self._at_work]:
            supervisor.start()

    def apply(self, config: AgentConfig, starts: bool) -> None:
        """Change the number of active collectors to the configured one.

        Args:
            config: the new configuration.
            starts: whether collectors that become active are started now.
        """
        before, self._at_work = self._at_work, config.collectors_at_work
        for number in range(self._at_work, before):
            self._supervisors[number].retire()
            if self._cluster is not None:
                self._cluster.release(number)
        for supervisor in self._supervisors[before : self._at_work] if starts else ():
            supervisor.start()

    def evaluate(self) -> None:
        """Order an evaluation of the present weights."""
        self._supervisors[0].evaluate()

    def handle_reports(self, timeout_s: float = 0.0) -> None:
        """Handle the collectors' reports; wait up to ``timeout_s`` if there are none yet.

        Raises:
            AgentError: the run can't continue.
        """
        if timeout_s > 0 and len(self._supervisors) > 1:
            channels = [each.process.channel for each in self._supervisors if each.process.channel is not None]
            select.select(channels, [], [], timeout_s)
            timeout_s = 0.0
        for supervisor in self._supervisors:
            supervisor.handle_reports(timeout_s)

    def watch(self) -> None:
        """Replace collectors that ended, hang, or have nothing more to do in their towns.

        Raises:
            AgentError: too many in a row finished no step.
        """
        for supervisor in self._supervisors[: self._at_work]:
            supervisor.watch()

    def stop(self) -> None:
        """Let the collectors give their simulators back and end, or end them; their reports can still be read."""
        for supervisor in self._supervisors:
            supervisor.process.ask_to_stop()
        until_s = time.monotonic() + self._grace_s
        for supervisor in self._supervisors:
            supervisor.process.stop(max(0.0, until_s - time.monotonic()))

    def close(self) -> None:
        """End the collectors that still run, and forget them."""
        for supervisor in self._supervisors:
            supervisor.close()
        if self._cluster is not None:
            self._cluster.close()

    def _others_may_drive(self, number: int) -> bool:
        """Return whether any other collector may drive, as far as is known."""
        at_work = self._supervisors[: self._at_work]
        return any(not other.is_failing for at, other in enumerate(at_work) if at != number)
