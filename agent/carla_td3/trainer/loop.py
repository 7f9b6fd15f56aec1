"""One training run: the loop that asks ``pacing`` for the next action and lets learner and collectors do it.

Owns the loop, the effect of requests, and the order in which a run ends. Knows no arithmetic of the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from carla_run.events import MemoryPool
from carla_run.exits import Exit
from carla_run.heartbeat import Phase, read_heartbeat
from carla_run.listener import Progress
from carla_run.memory.errors import failure
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests
from carla_td3.exchange.status import Status
from carla_td3.exits import AgentError, exhausted_pool, exit_code
from carla_td3.memory.preflight import PreflightResult
from carla_td3.trainer.announcement import announce
from carla_td3.trainer.checkpoint_store import CheckpointStore
from carla_td3.trainer.fleet import Fleet
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Action, Counters, Plan, decide, learning_rate, phase, step_limit
from carla_td3.trainer.reporter import Reporter
from carla_td3.trainer.requests import Requests, patched

WAIT_S = 0.001
"""Seconds between two looks at the collectors when the learner has nothing to do; a report ends the wait earlier."""
DRAINED_WAIT_S = 0.05
"""Seconds between two looks at requests while the run is drained."""


class TrainingLoop:
    """A run from its start, or its last checkpoint, to its end."""

    def __init__(self, admitted: PreflightResult, run: RunPaths, out: Console, stop: StopRequests) -> None:
        self._config = config = admitted.config
        self._run = run
        self._stop = stop
        self._stop_asked = ""
        self._statuses = [Status.of(run.exchange, number) for number in range(config.training.collectors)]
        self._learner = Learner(config, run, admitted.device, admitted.gave_way)
        self._plan = Plan.of(config, self._learner.pacing)
        self._reporter = Reporter(config, run, self._learner, self._statuses, out)
        self._events = self._reporter.events
        self._reporter.vitals.set(cuda=None if admitted.cuda is None else admitted.cuda.cuda)
        self._requests = Requests(run, self._events)
        self._store = CheckpointStore(self._learner, self._reporter)
        self._fleet = Fleet(
            *(config, run, self._statuses), learner=self._learner, store=self._store, reporter=self._reporter
        )

    @property
    def _counters(self) -> Counters:
        return self._store.counters

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return decide(self._plan, self._counters) is Action.FINISH

    def run(self) -> Exit:
        """Train, evaluate, end; return FINISHED or STOPPED.

        Raises:
            AgentError: the run can't continue; the last checkpoint holds what was learned.
        """
        announce(self._events, self._run, self._config, self._counters)
        self._requests.begin(self.progress)
        with self._reporter.running():
            try:
                if self._stop.signal is None:  # else it came while this process was starting
                    self._prepare()
                code = self._loop()
                self._end(code)
            except Exception as error:
                known = exit_code(error, self._learner.device_is_full)
                self._fail(error, known or Exit.CRASH)
                if known is not None and exit_code(error) is None:  # out of memory, as only the GPU's state now shows
                    raise AgentError(str(error), known, MemoryPool.DEVICE) from error
                raise
            finally:
                self._fleet.close()
        self._reporter.summarise(self._counters)
        return code

    def report_finished(self) -> None:
        """Report the end of a run whose learner was killed after its final checkpoint, unless it was reported."""
        last = read_heartbeat(self._run.heartbeat)
        if last is not None and last.exit_code == Exit.FINISHED:
            return
        for status in self._statuses:
            status.end_collector()
        with self._reporter.running():
            self._reporter.update(self._counters, Phase.FINISHED)
            self._reporter.vitals.set(exit_code=Exit.FINISHED)
        self._record("finished", "nothing was left to do")

    @property
    def progress(self) -> Progress:
        """Steps, updates, and the checkpoint if it holds them all."""
        return self._store.progress

    def checkpoint(self, cause: str) -> None:
        """Write a checkpoint, unless the last one is of this moment."""
        self._store.save_if_changed(cause)

    def drain(self, cause: str) -> None:
        """Write a checkpoint, let the collectors give the simulators back, and wait until :meth:`resume`.

        Episodes are cut: their last step is not terminal, as after a time limit. An evaluation is repeated later.
        """
        if self._counters.drained:
            return
        self._fleet.halt()
        self.checkpoint(cause)
        self._reporter.update(self._counters, Phase.DRAINING)
        self._fleet.stop()
        self._fleet.handle_reports()
        self._fleet.close()
        self._store.update_counters(drained=True)
        self._record("drained", cause)

    def resume(self, cause: str) -> None:
        """Start collectors after a drain; the phase says whether they find simulators."""
        if self._counters.drained:
            self._store.update_counters(drained=False)
            self._record("drain_ended", cause)
            self._fleet.start()

    def apply(self, values: Mapping[str, Any], cause: str) -> None:
        """Continue with other values of the configuration."""
        config = patched(self._config, values)
        self._learner.apply(config, values)
        self._fleet.apply(config, starts=not self._counters.drained)
        self._config, self._plan = config, Plan.of(config, self._learner.pacing)
        self._events.append("applied", cause, values=dict(values))

    def stop(self, cause: str) -> None:
        """End soon, as after SIGTERM."""
        self._stop_asked = cause

    def _record(self, event: str, cause: str) -> None:
        self._events.append(event, cause, steps=self._counters.steps, updates=self._counters.updates)

    def _prepare(self) -> None:
        self._learner.dry_run()
        self._learner.publish()
        if self._learner.changes_ratio:  # a start after a kill must know from which step on it holds
            self._store.save_if_possible("updates_per_step changed")
        self._fleet.start()

    def _loop(self) -> Exit:
        while not self._stopped_by:
            counters = self._counters  # read once: the collector goes on meanwhile
            self._fleet.allow(step_limit(self._plan, counters))
            action = decide(self._plan, counters)
            if action is Action.FINISH:
                return Exit.FINISHED
            self._reporter.update(counters, phase(self._plan, counters, action))
            self._perform(action)
            self._fleet.handle_reports(self._wait_s(action))
            if not self._counters.drained:
                self._fleet.watch()
            self._requests.serve_next(self)
        return Exit.STOPPED

    def _wait_s(self, action: Action) -> float:
        if self._counters.drained:
            return DRAINED_WAIT_S
        return WAIT_S if action is Action.WAIT else 0.0

    @property
    def _stopped_by(self) -> str:
        """The signal or request that asked the run to end; empty before."""
        return self._stop_asked if self._stop.signal is None else self._stop.signal.name

    def _perform(self, action: Action) -> None:
        if action is Action.UPDATE:
            self._learner.update(learning_rate(self._plan, self._counters))
            every = 1 if self._plan.lockstep else self._config.training.publish_every_updates
            if self._learner.updates % every == 0:
                self._learner.publish()
        elif action is Action.RESET:
            self._learner.reset()
            self._store.update_counters(final_from=self._learner.updates)
        elif action is Action.SAVE:
            self._store.save_if_possible("interval")
        elif action is Action.SAVE_UNSAVED:
            last = self._counters.steps >= self._plan.total_steps
            self._store.save_if_possible("last update" if last else "before the evaluation")
        elif action in (Action.EVALUATE, Action.FINAL_EVALUATION):
            self._learner.publish()
            self._fleet.evaluate()

    def _end(self, code: Exit) -> None:
        """Save what was learned, then let the collectors give the simulators back.

        Raises:
            CheckpointError: the disk still refuses the last checkpoint.
        """
        self._fleet.halt()
        refused = self._store.close("stop requested" if code is Exit.STOPPED else "last try", code is Exit.STOPPED)
        self._reporter.update(self._counters, Phase.STOPPING)
        self._fleet.stop()
        self._reporter.log(self._counters)
        if refused is not None:
            raise refused
        word = Phase.FINISHED if code is Exit.FINISHED else Phase.STOPPED
        self._reporter.update(self._counters, word)
        self._reporter.vitals.set(exit_code=code)
        self._record(word, self._stopped_by)
        self._requests.end(self.progress)

    def _fail(self, error: Exception, code: Exit) -> None:
        """Report why the run ends; if only the simulator is missing, save what was learned."""
        self._reporter.vitals.set(exit_code=code)
        pool = exhausted_pool(error, self._learner.device_is_full)
        self._events.add(failure(error, code, pool, self._counters.steps))
        if code is Exit.NO_SIMULATOR and self._counters.updates > max(0, self._counters.saved_updates):
            self._store.save_if_possible("no simulator")
        self._requests.end(self.progress, failure=str(error))
