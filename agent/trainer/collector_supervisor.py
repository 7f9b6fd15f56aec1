"""The supervision of the collector: started, given orders, listened to, replaced when it dies or leaves town, stopped.

Owns how many collectors were lost, when that is too many, and what each report means for the run. Decides nothing about
steps and updates: ``pacing`` does.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from agent.config import AgentConfig
from agent.exchange.messages import (
    Driving,
    EpisodeEnded,
    Evaluate,
    Evaluated,
    Failed,
    Order,
    Ready,
    Rehearsed,
    Report,
    Rests,
)
from agent.exchange.status import Status
from agent.exits import AgentError
from agent.telemetry.events import EventLog
from agent.trainer.checkpoint_store import CheckpointStore
from agent.trainer.collector_process import CollectorProcess
from agent.trainer.learner import Learner
from agent.trainer.reporter import Reporter
from agent.trainer.towns import Station, Towns
from contract.events import CollectorRestarted, MemoryPool
from contract.exits import Exit
from contract.paths import RunPaths


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
    """One collector after another, never two at a time."""

    def __init__(
        self,
        config: AgentConfig,
        run: RunPaths,
        status: Status,
        *,
        learner: Learner,
        store: CheckpointStore,
        reporter: Reporter,
        events: EventLog,
    ) -> None:
        self._collector = CollectorProcess(config, run, status)
        self._guard = CrashLoopGuard(config.collector.attempts, run.collector_log)
        self._total_steps = config.training.total_steps
        self._grace_s = config.collector.stop_grace_s
        self._learner, self._store, self._reporter, self._events = learner, store, reporter, events
        self._towns = Towns.of(config)
        self._station: Station | None = None
        self._may_leave = False
        """Whether the collector has nothing more to do where it is."""
        evaluates = config.evaluation.every_steps > 0 or config.evaluation.final_episodes > 0
        self._rehearsed = not evaluates

    def start(self) -> None:
        """Start a collector where one is wanted; it repeats an evaluation that the last one didn't end."""
        counters, wanted = self._store.counters, self._wanted
        if self._towns.config is not None:
            self._events.append("town", map=wanted.map, episodes=self._learner.episodes, steps=counters.steps)
        self._station, self._may_leave = wanted, False
        self._collector.start(wanted, rehearse=not self._rehearsed)
        self._reporter.memory.collector_pid = self._collector.pid
        self._guard.begin(counters.steps)
        if counters.evaluating:
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
            AgentError: too many in a row have done nothing.
        """
        ended = self._collector.ended()
        if ended is None:
            if self._may_leave and self._station != self._wanted:
                self._replace()
            return
        self.hear()
        steps = self._store.counters.steps
        self._guard.ended(ended.cause, steps)
        self._reporter.vitals.collector_restarts += 1
        restarts = self._reporter.vitals.collector_restarts
        self._events.add(CollectorRestarted(**asdict(ended), restarts=restarts, steps=steps))
        self._collector.close()
        self.start()

    def stop(self) -> None:
        """Let the collector give the simulator back and end, or end it; what it reports can still be heard."""
        self._collector.stop(self._grace_s)

    def close(self) -> None:
        """End the collector if it still runs, and forget it."""
        self._collector.close()
        self._reporter.memory.collector_pid = None

    @property
    def _wanted(self) -> Station:
        """Where a collector is to be now; at the run's end it stays where it is."""
        counters, episodes = self._store.counters, self._learner.episodes
        if counters.evaluating or not self._rehearsed:
            return self._towns.evaluating(episodes)
        if self._station is not None and counters.steps >= self._total_steps:
            return self._station
        return self._towns.driving(episodes)

    def _replace(self) -> None:
        """Let the collector give the simulator back, and start the next; no episode is lost, for none is open."""
        self.stop()
        self.hear()
        self._collector.close()
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
            # A collector computes on the CPU, so what it runs out of is the host's.
            raise AgentError(report.sentence, code, MemoryPool.HOST if code is Exit.OUT_OF_MEMORY else None)
        elif isinstance(report, Rehearsed):
            self._rehearsed = self._may_leave = True
            self._events.append("evaluation_rehearsed", **report.model_dump(exclude={"kind"}))
        elif isinstance(report, Rests):
            self._may_leave = True
        elif isinstance(report, Ready):
            self._learner.open_replay()
            self._events.append("collector_ready", pid=self._collector.pid, steps=report.steps)

    def _take_evaluation(self, report: Evaluated) -> None:
        self._guard.progressed()
        self._may_leave = True
        self._reporter.take_evaluation(report)
        self._events.append("evaluated", **report.model_dump(exclude={"kind", "score", "table"}))
        self._store.note(evaluating=False, evaluated_at=report.step, finally_evaluated=report.final)
        # Nothing was updated meanwhile, so the score belongs to these very weights.
        self._store.save_if_possible("evaluated", report.score)
