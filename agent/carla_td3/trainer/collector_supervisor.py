"""The supervision of one collector: started, given orders, listened to, replaced when it dies or leaves town, stopped.

Owns how many collectors were lost, when that is too many, and what each report means for the run. Decides nothing about
steps and updates: ``pacing`` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from carla_run.events import AgentEvent, CollectorRestarted, MemoryPool
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.messages import (
    ChunkLost,
    Driving,
    EpisodeEnded,
    Evaluate,
    Evaluated,
    Failed,
    Order,
    Placed,
    Ready,
    Rehearsed,
    Report,
    Rests,
)
from carla_td3.exits import AgentError
from carla_td3.telemetry.events import EventLog
from carla_td3.trainer.checkpoint_store import CheckpointStore
from carla_td3.trainer.collector_process import CollectorProcess
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.reporter import Reporter
from carla_td3.trainer.shares import settings_of
from carla_td3.trainer.towns import Station, Towns

REST_S = 60.0
"""Between two tries of a collector that did nothing too often, while others drive."""


class CrashLoopGuard:
    """Ends the run where one collector after another ends without a step: that is no chance event any more.

    Args:
        attempts: fruitless collectors in a row that end the run.
        log: where they say why, for the sentence.
    """

    def __init__(self, attempts: int, log: Path) -> None:
        self._attempts = attempts
        self._log = log
        self._fruitless = 0
        self._steps = 0

    def begin(self, steps: int) -> None:
        """Note the steps that a new collector starts with."""
        self._steps = steps

    def progressed(self) -> None:
        """Note that the present collector finished an evaluation, which takes no steps."""
        self._fruitless = 0

    def ended(self, cause: str, steps: int) -> None:
        """Count a collector that ended.

        Raises:
            AgentError: it was the last one of too many that did nothing (exit 1).
        """
        self._fruitless = 0 if steps > self._steps else self._fruitless + 1
        if self._fruitless >= self._attempts:
            raise AgentError(
                f"The collector ended {self._fruitless} times in a row without a finished step (last: {cause}): "
                f"{self._log} has what it said.",
                Exit.CRASH,
            )


class CollectorSupervisor:
    """One collector after another, never two at a time.

    Args:
        config: of the run.
        run: where it lives.
        process: the collector's.
        number: among the run's collectors; the first one evaluates.
        learner: whose rings the collectors write.
        store: the run's counters and checkpoints.
        reporter: is told of episodes, evaluations and memory.
        events: where a person reads what became of it.
        others_may_drive: whether another collector does what this one can't, as far as is known.
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
        events: EventLog,
        others_may_drive: Callable[[], bool],
    ) -> None:
        self._config, self._collector, self._number = config, process, number
        self._others_may_drive = others_may_drive
        self._failed_at: int | None = None
        self._which: dict[str, Any] = {"collector": number} if config.training.collectors > 1 else {}
        self._rests_until_s: float | None = None
        self._guard = CrashLoopGuard(config.collector.attempts, run.log_of(number))
        self._total_steps = config.training.total_steps
        self._grace_s = config.collector.stop_grace_s
        self._learner, self._store, self._reporter, self._events = learner, store, reporter, events
        self._towns = Towns.of(config, number)
        self._station: Station | None = None
        self._may_leave = False
        """Whether the collector has nothing more to do where it is."""
        evaluates = config.evaluation.every_steps > 0 or config.evaluation.final_episodes > 0
        self._rehearsed = not evaluates or number > 0

    def start(self) -> None:
        """Start a collector where one is wanted; it repeats an evaluation that the last one didn't end."""
        counters, wanted = self._store.counters, self._wanted
        if self._towns.config is not None:
            self._events.append("town", map=wanted.map, episodes=self._episodes, steps=counters.steps, **self._which)
        self._station, self._may_leave, self._rests_until_s = wanted, False, None
        settings = settings_of(self._config, self._number, wanted.map, self._steps, counters.steps)
        self._collector.start(settings, wanted.until_episode, rehearse=not self._rehearsed)
        self._reporter.memory.collector_pids[self._number] = self._collector.pid
        self._guard.begin(self._steps)
        if self._evaluating:
            self._order_evaluation()

    def evaluate(self) -> None:
        """Have the present weights evaluated; where evaluations have a map of their own, by a collector there."""
        self._store.note(evaluating=True)
        if self._station == self._wanted:
            self._order_evaluation()
        else:
            self._replace()

    def hear(self, timeout_s: float = 0.0) -> None:
        """Handle what the collector reports; wait up to ``timeout_s`` where there is nothing yet.

        Raises:
            AgentError: no collector could go on.
        """
        for report in self._collector.reports(timeout_s):
            self._take(report)

    def watch(self) -> None:
        """Replace a collector that ended or hangs, or has nothing more to do in its town.

        Raises:
            AgentError: too many in a row have done nothing, and no other collector drives.
        """
        if self._rests_until_s is not None:
            if time.monotonic() >= self._rests_until_s:
                self.start()
            return
        ended = self._collector.ended()
        if ended is None:
            if self._may_leave and self._station != self._wanted:
                self._replace()
            return
        self.hear()
        rests = False
        try:
            self._guard.ended(ended.cause, self._steps)
        except AgentError:
            rests = self._goes_on_without()
            if not rests:
                raise
        counted = self._reporter.vitals.collector_restarts
        counted[self._number] = counted.get(self._number, 0) + 1
        restarts, steps = sum(counted.values()), self._store.counters.steps
        which = self._number if self._which else None
        self._events.add(CollectorRestarted(**asdict(ended), restarts=restarts, steps=steps, collector=which))
        self._collector.close()
        if rests:
            self._rests_until_s = time.monotonic() + REST_S
        else:
            self.start()

    def retire(self) -> None:
        """Let the collector give the simulator back and end; no other one follows."""
        self._collector.stop(self._grace_s)
        self.hear()
        self.close()

    def close(self) -> None:
        """End the collector if it still runs, and forget it."""
        self._collector.close()
        self._reporter.memory.collector_pids[self._number] = self._rests_until_s = None

    @property
    def fails(self) -> bool:
        """Whether the last that is known of it is that it couldn't go on: it has taken no step since."""
        return self._failed_at == self._steps

    def _goes_on_without(self) -> bool:
        """Take note that the collector can't go on; return whether the run can: all may be at the same trouble."""
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
    def _wanted(self) -> Station:
        """Where a collector is to be now; at the run's end it stays where it is."""
        if self._evaluating or not self._rehearsed:
            return self._towns.evaluating(self._episodes)
        if self._station is not None and self._store.counters.steps >= self._total_steps:
            return self._station
        return self._towns.driving(self._episodes)

    def _replace(self) -> None:
        """Let the collector give the simulator back, and start the next; no episode is lost, for none is open."""
        self.retire()
        self.start()

    def _order_evaluation(self) -> None:
        steps = self._store.counters.steps
        self._collector.send(Evaluate(step=steps, final=steps >= self._total_steps))

    def _take(self, report: Order | Report) -> None:
        if isinstance(report, EpisodeEnded):
            self._reporter.take_episode(report)
        elif isinstance(report, Driving):
            self._reporter.take_driving(report)
        elif isinstance(report, Evaluated):
            self._take_evaluation(report)
        elif isinstance(report, Failed):
            code = Exit(report.code)
            if code is Exit.NO_SIMULATOR and not self._evaluating and self._goes_on_without():
                return  # its process ends, and the next one tries again
            # A collector computes on the CPU, so what it runs out of is the host's.
            raise AgentError(report.sentence, code, MemoryPool.HOST if code is Exit.OUT_OF_MEMORY else None)
        elif isinstance(report, Rehearsed):
            self._rehearsed = self._may_leave = True
            self._events.append("evaluation_rehearsed", **report.model_dump(exclude={"kind"}))
        elif isinstance(report, Rests):
            self._may_leave = True
        elif isinstance(report, Ready):
            self._learner.open_ring(self._number)
            self._events.append("collector_ready", pid=self._collector.pid, steps=report.steps, **self._which)
        elif isinstance(report, Placed | ChunkLost):
            event = AgentEvent.CHUNK_LOST if isinstance(report, ChunkLost) else AgentEvent.COLLECTOR_PLACED
            self._events.append(event, **report.model_dump(exclude={"kind"}), collector=self._number)

    def _take_evaluation(self, report: Evaluated) -> None:
        self._guard.progressed()
        self._may_leave = True
        self._reporter.take_evaluation(report)
        self._events.append("evaluated", **report.model_dump(exclude={"kind", "score", "table"}))
        judged = self._store.counters.updates if report.final else -1
        self._store.note(evaluating=False, evaluated_at=report.step, finally_evaluated=judged)
        # Nothing was updated meanwhile, so the score belongs to these very weights.
        self._store.save_if_possible("evaluated", report.score)
