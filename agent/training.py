"""One training run: the loop that asks ``pacing`` what is next and has learner and collector do it.

Owns the counters, the restarts of the collector and the order in which a run ends. Knows no ``carla`` (the client
can abort its process; this one must live) and no arithmetic of the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console

from agent.collecting.patience import Patience
from agent.collecting.process import CollectorProcess
from agent.config import AgentConfig
from agent.exchange.messages import EpisodeEnded, Evaluate, Evaluated, Failed, Order, Ready, Rehearsed, Report
from agent.exchange.status import Pace, Status
from agent.exits import AgentError, Exit, exit_code
from agent.learner import Learner
from agent.pacing import Action, Plan, decide, phase, step_limit
from agent.reporting.reporter import Reporter
from agent.reporting.telemetry import EventLog
from agent.requests import Requests, Standing, patched
from agent.run_directory import RunDirectory, provenance
from agent.signals import StopRequest

WAIT_S = 0.001
"""The learner's look at the collector when it has nothing to do; a report ends the wait earlier."""
DRAINED_WAIT_S = 0.05
"""The same while there is no collector to look at, only requests."""


class Training:
    """A run from its start or its last checkpoint to its end."""

    def __init__(
        self, config: AgentConfig, run: RunDirectory, out: Console, stop: StopRequest, device: str | None = None
    ) -> None:
        self._config = config
        self._run = run
        self._stop = stop
        self._stop_asked = ""
        self._plan = Plan.of(config)
        self._events = EventLog(run.events)
        self._status, self._pace = Status(run.exchange / "status.bin"), Pace(run.exchange / "pace.bin")
        self._requests = Requests(run, self._events)
        self._learner = Learner(config, run, device)
        self._counters = self._learner.counters()
        self._collector = CollectorProcess(config, run, self._status)
        self._reporter = Reporter(config, run, self._learner, self._status, out)
        self._patience = Patience(config.collector.attempts, run.collector_log)
        self._rehearsed = False
        self._last_evaluation: Evaluated | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return decide(self._plan, self._counters) is Action.FINISH

    def run(self) -> Exit:
        """Train, evaluate, leave; return FINISHED or STOPPED.

        Raises:
            AgentError: the run can't go on; what was learned is in the last checkpoint.
        """
        self._announce()
        with self._reporter:
            try:
                if self._stop.signal is None:  # asked while this process was starting: there is nothing to prepare for
                    self._prepare()
                code = self._loop()
                self._end(code)
            except Exception as error:
                self._fail(error)
                raise
            finally:
                self._collector.close()
        return code

    @property
    def standing(self) -> Standing:
        """Steps, updates, and the checkpoint if it holds them all."""
        counters = self._counters
        saved = counters.saved_updates == counters.updates
        return Standing(counters.steps, counters.updates, self._learner.checkpoint if saved else None)

    def checkpoint(self, cause: str) -> None:
        """Write a checkpoint, unless the last one is of this very moment: that one may bear a score."""
        self._count()
        counters = self._counters
        if (counters.saved_steps, counters.saved_updates) != (counters.steps, counters.updates):
            self._save(cause)

    def drain(self, cause: str) -> None:
        """Write a checkpoint, let the collector give the simulator back, and rest until :meth:`resume`.

        The episode is cut: its last step is not terminal, as after a time limit. An evaluation is repeated later.
        """
        if self._counters.drained:
            return
        self._pace.step_limit = 0
        self.checkpoint(cause)
        self._reporter.tell(self._counters, "draining")
        self._collector.stop(self._config.collector.stop_grace_s)
        self._hear(self._collector.reports())
        self._collector.close()
        self._reporter.memory.collector_pid = None
        self._count()
        self._counters = replace(self._counters, drained=True)
        self._events.append("drained", cause, steps=self._counters.steps, updates=self._counters.updates)

    def resume(self, cause: str) -> None:
        """Start a collector after a drain; whether it finds a simulator is told by the phase."""
        if self._counters.drained:
            self._counters = replace(self._counters, drained=False)
            self._events.append("drain_ended", cause, steps=self._counters.steps, updates=self._counters.updates)
            self._start_collector()

    def apply(self, values: Mapping[str, Any], cause: str) -> None:
        """Go on with other values of the configuration."""
        config = patched(self._config, values)
        self._learner.apply(config, values)
        self._config, self._plan = config, Plan.of(config)
        self._events.append("applied", cause, values=dict(values))

    def stop(self, cause: str) -> None:
        """End soon, as after SIGTERM."""
        self._stop_asked = cause

    def summarise(self, out: Console) -> None:
        """Print what the run left, and where."""
        counters, found = self._counters, self._last_evaluation
        if found is not None:
            out.print(found.table, highlight=False, soft_wrap=True)
        video = f", video {self._run.path / found.video}" if found is not None and found.video else ""
        words = f"{self._run.path}: {counters.steps} steps, {counters.updates} updates{video}"
        out.print(words, highlight=False, soft_wrap=True)

    def _announce(self) -> None:
        self._events.append(
            "started" if self._counters.saved_updates < 0 and self._counters.steps == 0 else "resumed",
            steps=self._counters.steps,
            updates=self._counters.updates,
            config_digest=self._config.digest(),
            overrides=self._run.read_overrides(),
            **provenance(),
        )
        self._requests.begin(self.standing)

    def _prepare(self) -> None:
        self._learner.rehearse()
        self._learner.publish()
        self._start_collector()

    def _loop(self) -> Exit:
        while not self._stopped_by:
            self._count()
            self._pace.step_limit = step_limit(self._plan, self._counters)
            action = decide(self._plan, self._counters)
            if action is Action.FINISH:
                return Exit.FINISHED
            self._reporter.tell(self._counters, phase(self._plan, self._counters, action))
            self._perform(action)
            self._hear(self._collector.reports(self._wait_s(action)))
            self._watch()
            self._requests.obey(self)
        return Exit.STOPPED

    def _wait_s(self, action: Action) -> float:
        if self._counters.drained:
            return DRAINED_WAIT_S
        return WAIT_S if action is Action.WAIT else 0.0

    @property
    def _stopped_by(self) -> str:
        """Who wants the run to end; empty while nobody does."""
        return self._stop_asked if self._stop.signal is None else self._stop.signal.name

    def _perform(self, action: Action) -> None:
        if action is Action.UPDATE:
            self._learner.update()
            every = 1 if self._plan.lockstep else self._config.training.publish_every_updates
            if self._learner.updates % every == 0:
                self._learner.publish()
        elif action is Action.SAVE:
            self._save("interval")
        elif action is Action.SECURE:
            self._save("last update" if self._counters.steps >= self._plan.total_steps else "before the evaluation")
        elif action in (Action.EVALUATE, Action.EVALUATE_FINALLY):
            self._learner.publish()
            self._counters = replace(self._counters, evaluating=True)
            self._order_evaluation()

    def _count(self) -> None:
        self._counters = replace(self._counters, steps=self._learner.steps, updates=self._learner.updates)

    def _start_collector(self) -> None:
        self._collector.start(rehearse=not self._rehearsed)
        self._reporter.memory.collector_pid = self._collector.pid
        self._patience.begin(self._counters.steps)
        if self._counters.evaluating:
            self._order_evaluation()

    def _order_evaluation(self) -> None:
        final = self._counters.steps >= self._plan.total_steps
        self._collector.send(Evaluate(step=self._counters.steps, final=final))

    def _watch(self) -> None:
        """Replace a collector that ended or hangs."""
        cause = None if self._counters.drained else self._collector.ended()
        if cause is None:
            return
        self._hear(self._collector.reports())
        self._count()
        self._patience.ended(cause, self._counters.steps)
        self._reporter.vitals.collector_restarts += 1
        restarts = self._reporter.vitals.collector_restarts
        self._events.append("collector_restarted", cause, restarts=restarts, steps=self._counters.steps)
        self._collector.close()
        self._start_collector()

    def _hear(self, reports: list[Order | Report]) -> None:
        for report in reports:
            if isinstance(report, EpisodeEnded):
                self._reporter.take_episode(report)
            elif isinstance(report, Evaluated):
                self._take_evaluation(report)
            elif isinstance(report, Failed):
                raise AgentError(report.sentence, Exit(report.code))
            elif isinstance(report, Rehearsed):
                self._rehearsed = True
                self._events.append("evaluation_rehearsed", **report.model_dump(exclude={"kind"}))
            elif isinstance(report, Ready):
                self._learner.open_replay()
                self._events.append("collector_ready", pid=self._collector.pid, steps=report.steps)

    def _take_evaluation(self, report: Evaluated) -> None:
        self._patience.rewarded()
        self._last_evaluation = report
        self._reporter.take_evaluation(report.step, report.totals["td3"])
        self._events.append("evaluated", **report.model_dump(exclude={"kind", "score", "table"}))
        self._counters = replace(
            self._counters, evaluating=False, evaluated_at=report.step, finally_evaluated=report.final
        )
        # Nothing was updated meanwhile, so the score belongs to these very weights.
        self._save("evaluated", report.score)

    def _save(self, cause: str, score: float | None = None) -> None:
        self._count()
        self._reporter.tell(self._counters, "saving")
        self._learner.save(self._counters, score)
        self._counters = replace(self._counters, saved_updates=self._counters.updates, saved_steps=self._counters.steps)
        self._events.append("checkpoint", cause, steps=self._counters.steps, updates=self._counters.updates)

    def _end(self, code: Exit) -> None:
        """Checkpoint if the run was stopped, then let the collector give the simulator back."""
        self._pace.step_limit = 0
        if code is Exit.STOPPED:
            self.checkpoint("stop requested")
        self._reporter.tell(self._counters, "stopping")
        self._collector.stop(self._config.collector.stop_grace_s)
        self._count()
        self._reporter.log(self._counters)
        word = "finished" if code is Exit.FINISHED else "stopped"
        self._reporter.tell(self._counters, word)
        self._reporter.vitals.exit_code = code
        self._events.append(word, self._stopped_by, steps=self._counters.steps, updates=self._counters.updates)
        self._requests.end(self.standing)

    def _fail(self, error: Exception) -> None:
        """Say why the run ends; keep what was learned if it is only the simulator that is missing."""
        code = exit_code(error) or Exit.CRASH
        self._reporter.vitals.exit_code = code
        self._events.append("failed", str(error), exit_code=int(code), steps=self._counters.steps)
        if code is Exit.NO_SIMULATOR and self._counters.updates > max(0, self._counters.saved_updates):
            self._save("no simulator")
        self._requests.end(self.standing, failure=str(error))
