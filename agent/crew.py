"""The loop's dealings with the collector: started, given orders, listened to, replaced when it dies, sent home.

Owns which collector drives, how many were lost, and what each of its reports means for the run. Decides nothing about
steps and updates (``pacing`` does) and knows no ``carla``.
"""

from __future__ import annotations

from dataclasses import asdict

from agent.collecting.patience import Patience
from agent.collecting.process import CollectorProcess
from agent.config import AgentConfig
from agent.exchange.messages import EpisodeEnded, Evaluate, Evaluated, Failed, Order, Ready, Rehearsed, Report
from agent.exchange.status import Status
from agent.exits import AgentError
from agent.learner import Learner
from agent.ledger import Ledger
from agent.reporting.reporter import Reporter
from agent.reporting.telemetry import EventLog
from contract.events import CollectorRestarted, MemoryPool
from contract.exits import Exit
from contract.paths import RunPaths


class Crew:
    """One collector after another, never two at a time."""

    def __init__(
        self,
        config: AgentConfig,
        run: RunPaths,
        status: Status,
        *,
        learner: Learner,
        ledger: Ledger,
        reporter: Reporter,
        events: EventLog,
    ) -> None:
        self._collector = CollectorProcess(config, run, status)
        self._patience = Patience(config.collector.attempts, run.collector_log)
        self._total_steps = config.training.total_steps
        self._grace_s = config.collector.stop_grace_s
        self._learner, self._ledger, self._reporter, self._events = learner, ledger, reporter, events
        self._rehearsed = False

    def start(self) -> None:
        """Start a collector; it repeats an evaluation that the last one didn't end."""
        counters = self._ledger.counters
        self._collector.start(rehearse=not self._rehearsed)
        self._reporter.memory.collector_pid = self._collector.pid
        self._patience.begin(counters.steps)
        if counters.evaluating:
            self._order_evaluation()

    def evaluate(self) -> None:
        """Have the present weights evaluated."""
        self._ledger.note(evaluating=True)
        self._order_evaluation()

    def hear(self, timeout_s: float = 0.0) -> None:
        """Take in what the collector reports; wait so long for it where there is nothing yet.

        Raises:
            AgentError: no collector could go on.
        """
        for report in self._collector.reports(timeout_s):
            self._take(report)

    def watch(self) -> None:
        """Replace a collector that ended or hangs.

        Raises:
            AgentError: too many in a row have done nothing.
        """
        ended = self._collector.ended()
        if ended is None:
            return
        self.hear()
        self._ledger.count()
        steps = self._ledger.counters.steps
        self._patience.ended(ended.cause, steps)
        self._reporter.vitals.collector_restarts += 1
        restarts = self._reporter.vitals.collector_restarts
        self._events.add(CollectorRestarted(**asdict(ended), restarts=restarts, steps=steps))
        self._collector.close()
        self.start()

    def stop(self) -> None:
        """Let the collector give the simulator back and end, or end it; what it reports can still be heard."""
        self._collector.stop(self._grace_s)

    def close(self) -> None:
        """Have no collector any more."""
        self._collector.close()
        self._reporter.memory.collector_pid = None

    def _order_evaluation(self) -> None:
        steps = self._ledger.counters.steps
        self._collector.send(Evaluate(step=steps, final=steps >= self._total_steps))

    def _take(self, report: Order | Report) -> None:
        if isinstance(report, EpisodeEnded):
            self._reporter.take_episode(report)
        elif isinstance(report, Evaluated):
            self._take_evaluation(report)
        elif isinstance(report, Failed):
            code = Exit(report.code)
            # A collector computes on the CPU, so what it runs out of is the host's.
            raise AgentError(report.sentence, code, MemoryPool.HOST if code is Exit.OUT_OF_MEMORY else None)
        elif isinstance(report, Rehearsed):
            self._rehearsed = True
            self._events.append("evaluation_rehearsed", **report.model_dump(exclude={"kind"}))
        elif isinstance(report, Ready):
            self._learner.open_replay()
            self._events.append("collector_ready", pid=self._collector.pid, steps=report.steps)

    def _take_evaluation(self, report: Evaluated) -> None:
        self._patience.rewarded()
        self._reporter.take_evaluation(report)
        self._events.append("evaluated", **report.model_dump(exclude={"kind", "score", "table"}))
        self._ledger.note(evaluating=False, evaluated_at=report.step, finally_evaluated=report.final)
        # Nothing was updated meanwhile, so the score belongs to these very weights.
        self._ledger.save_if_possible("evaluated", report.score)
