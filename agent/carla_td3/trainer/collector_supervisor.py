"""Supervises one collector: starts it, gives it orders, reads its reports, replaces it when it dies or changes town,
stops it.

Owns how many collectors were lost, when that is too many, and what each report means for the run. Decides nothing about
steps and updates: ``pacing`` does. Its states and transitions:

    off      → drives   start
    drives   → drives   it ended or hung; or its time in a town is over
    drives   → waits    it ended ``collector.attempts`` times in a row without a step, and others may drive
    drives   → (error)  the same, but no other may drive: the run ends
    waits    → drives   ``RETRY_S`` later
    any      → off      retire, close
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from carla_run.events import AgentEvent, CollectorRestarted, MemoryPool
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange import messages
from carla_td3.exchange.messages import Ended, Order, Report
from carla_td3.exits import AgentError
from carla_td3.trainer.checkpoint_store import CheckpointStore
from carla_td3.trainer.collector_process import CollectorProcess
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.reporter import Reporter
from carla_td3.trainer.shares import settings_of
from carla_td3.trainer.towns import Assignment, Towns

RETRY_S = 60.0
"""Seconds between two tries of a collector that failed too often, while others drive."""
_BUS_ERROR = (
    "Collector {} was killed by SIGBUS again and again: the disk of {} is full, or can't read or write a block of a "
    "mapped file. Free some space, or look at the kernel's messages (`dmesg`), copy the run to another disk, and "
    "resume it there."
)


class CollectorSupervisor:
    """One collector after another, never two at a time.

    Args:
        config: of the run.
        run: the run directory.
        process: of the collector.
        number: of this collector in the run; number 0 evaluates.
        learner: reads the collectors' rings.
        store: the run's counters and checkpoints.
        reporter: gets episodes, evaluations, memory and events.
        others_may_drive: returns whether, as far as is known, another collector can drive.
    """

    def __init__(
        self,
        config: AgentConfig,
        run: RunPaths,
        process: CollectorProcess,
        number: int,
        *,
        learner: Learner,
        store: CheckpointStore,
        reporter: Reporter,
        others_may_drive: Callable[[], bool],
    ) -> None:
        self.process = process
        self._config, self._number, self._log = config, number, run.log_of(number)
        self._path = run.path
        self._learner, self._store, self._reporter, self._events = learner, store, reporter, reporter.events
        self._others_may_drive = others_may_drive
        self._which: dict[str, Any] = {"collector": number} if config.training.collectors > 1 else {}
        self._retry_at_s: float | None = None
        self._began_at = self._attempts_without_step = 0
        self._failed_at: int | None = None
        self._total_steps = config.training.total_steps
        self._towns = Towns.of(config, number)
        self._assignment: Assignment | None = None
        self._done_in_town = False
        """Whether the collector has nothing more to do in its town."""
        evaluates = config.evaluation.every_steps > 0 or config.evaluation.final_episodes > 0
        self._rehearsed = not evaluates or number > 0

    def start(self) -> None:
        """Start a collector if one is wanted; it repeats an evaluation that the last one didn't finish."""
        counters, wanted = self._store.counters, self._wanted
        if self._towns.config is not None:
            self._events.append("town", map=wanted.map, episodes=self._episodes, steps=counters.steps, **self._which)
        self._assignment, self._done_in_town, self._retry_at_s = wanted, False, None
        self._began_at = self._steps
        settings = settings_of(self._config, self._number, wanted.map, self._began_at, counters.steps)
        self.process.start(settings, wanted.until_episode, rehearse=not self._rehearsed)
        self._reporter.memory.collector_pids[self._number] = self.process.pid
        if self._evaluating:
            self._order_evaluation()

    def evaluate(self) -> None:
        """Order an evaluation of the present weights; if evaluations have their own map, by a collector on that map."""
        self._store.update_counters(evaluating=True)
        if self._assignment == self._wanted:
            self._order_evaluation()
        else:
            self._replace()

    def handle_reports(self, timeout_s: float = 0.0) -> None:
        """Handle the collector's reports; wait up to ``timeout_s`` if there are none yet.

        Raises:
            AgentError: no collector could continue.
        """
        for report in self.process.reports(timeout_s):
            self._take(report)

    def watch(self) -> None:
        """Replace a collector that ended, hangs, or has nothing more to do in its town.

        Raises:
            AgentError: too many in a row finished no step, and no other collector drives.
        """
        if self._retry_at_s is not None:
            if time.monotonic() >= self._retry_at_s:
                self.start()
        elif (ended := self.process.ended()) is not None:
            self._replace_ended(ended)
        elif self._done_in_town and self._assignment != self._wanted:
            self._replace()

    def retire(self) -> None:
        """Let the collector give the simulator back and end; it isn't replaced."""
        self.process.stop(self._config.collector.stop_grace_s)
        self.handle_reports()
        self.close()

    def close(self) -> None:
        """End the collector if it still runs, and forget it."""
        self.process.close()
        self._reporter.memory.collector_pids[self._number] = self._retry_at_s = None

    @property
    def is_failing(self) -> bool:
        """Whether it failed at its last report and has taken no step since."""
        return self._failed_at == self._steps

    def _replace_ended(self, ended: Ended) -> None:
        """Count a collector that ended, and start the next one: after a pause if too many in a row took no step."""
        self.handle_reports()
        self._attempts_without_step = 0 if self._steps > self._began_at else self._attempts_without_step + 1
        pauses = self._attempts_without_step >= self._config.collector.attempts
        if pauses and not self._run_can_continue():
            if ended.signal == signal.SIGBUS:
                raise AgentError(_BUS_ERROR.format(self._number, self._path), Exit.BAD_CONFIG)
            raise AgentError(
                f"The collector ended {self._attempts_without_step} times in a row without a finished step "
                f"(last: {ended.cause}): {self._log} has its output.",
                Exit.CRASH,
            )
        counted = self._reporter.vitals.collector_restarts
        counted[self._number] = counted.get(self._number, 0) + 1
        restarts, steps = sum(counted.values()), self._store.counters.steps
        said = ended.model_dump(exclude={"kind"})
        self._events.add(CollectorRestarted(**said, restarts=restarts, steps=steps, **self._which))
        self.process.close()
        if pauses:
            self._retry_at_s = time.monotonic() + RETRY_S
        else:
            self.start()

    def _run_can_continue(self) -> bool:
        """Record that the collector can't continue; return whether the run can. All collectors may have the same
        problem.
        """
        self._failed_at = self._steps
        return self._others_may_drive()

    @property
    def _steps(self) -> int:
        return self._learner.collector_steps[self._number]

    @property
    def _episodes(self) -> int:
        return self._learner.episodes_of(self._number)

    @property
    def _evaluating(self) -> bool:
        return self._store.counters.evaluating and self._number == 0

    @property
    def _wanted(self) -> Assignment:
        """The collector's station now; at the run's end it stays where it is."""
        if self._evaluating or not self._rehearsed:
            return self._towns.evaluating(self._episodes)
        if self._assignment is not None and self._store.counters.steps >= self._total_steps:
            return self._assignment
        return self._towns.driving(self._episodes)

    def _replace(self) -> None:
        """Let the collector give the simulator back, and start the next; no episode is open, so none is lost."""
        self.retire()
        self.start()

    def _order_evaluation(self) -> None:
        steps = self._store.counters.steps
        self.process.send(messages.Evaluate(step=steps, final=steps >= self._total_steps))

    def _take(self, report: Order | Report) -> None:
        if isinstance(report, messages.EpisodeEnded | messages.Driving):
            self._reporter.take(report)
        elif isinstance(report, messages.Evaluated):
            self._take_evaluation(report)
        elif isinstance(report, messages.Failed):
            code = Exit(report.code)
            if code is Exit.NO_SIMULATOR and not self._evaluating and self._run_can_continue():
                return  # its process ends, and the next one tries again
            # A collector computes on the CPU, so it runs out of host memory.
            raise AgentError(report.sentence, code, MemoryPool.HOST if code is Exit.OUT_OF_MEMORY else None)
        elif isinstance(report, messages.Rehearsed):
            self._rehearsed = self._done_in_town = True
            self._events.append("evaluation_rehearsed", **report.model_dump(exclude={"kind"}))
        elif isinstance(report, messages.ReachedLastEpisode):
            self._done_in_town = True
        elif isinstance(report, messages.Ready):
            self._learner.open_ring(self._number)
            self._events.append("collector_ready", pid=self.process.pid, steps=report.steps, **self._which)
        elif isinstance(report, messages.Placed | messages.ChunkLost):
            event = AgentEvent.CHUNK_LOST if isinstance(report, messages.ChunkLost) else AgentEvent.COLLECTOR_PLACED
            self._events.append(event, **report.model_dump(exclude={"kind"}), collector=self._number)

    def _take_evaluation(self, report: messages.Evaluated) -> None:
        self._attempts_without_step = 0  # it took no steps, but it did work
        self._done_in_town = True
        self._reporter.take(report)
        self._events.append("evaluated", **report.model_dump(exclude={"kind", "score", "table"}))
        judged = self._store.counters.updates if report.final else -1
        self._store.update_counters(evaluating=False, evaluated_at=report.step, finally_evaluated=judged)
        # No update has happened meanwhile, so the score belongs to these weights.
        self._store.save_if_possible("evaluated", report.score)
