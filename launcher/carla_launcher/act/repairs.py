"""Carries decisions out: replaces simulator or agent, takes or restores steps, and records each action before it.

Orders the actions of one repair, and counts failures. ``Run`` does the single actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Sequence

from carla_launcher.act.effects import State
from carla_launcher.act.ladder_state import LadderState
from carla_launcher.act.monitor import Monitor
from carla_launcher.act.program import Script, SupervisedProcess
from carla_launcher.act.run import Run
from carla_launcher.act.runtime import StartError
from carla_launcher.act.simulator_figures import SimulatorFigures
from carla_launcher.decide import policy
from carla_launcher.decide.choose import Deficit
from carla_launcher.decide.decisions import (
    Decision,
    Degrade,
    Ending,
    Nothing,
    RestartAgent,
    RestartSimulator,
    Restore,
    Stop,
)
from carla_launcher.decide.detectors import vulkan
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.ladder import RungStep, merged_values
from carla_launcher.decide.restarts import SIGNALLED, failures_in_a_row
from carla_launcher.decide.room import missing_for_agent, wait_command
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_run.events import LauncherEvent
from carla_run.exits import Exit

LOG_LINES_SHOWN = 12
WAITS = "waits until it is free"
UNEXPLAINED = (Cause.SIMULATOR_CRASH, Cause.SIMULATOR_NOT_READY)


class RunOverError(Exception):
    """The run must end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Repairs:
    """The repairs of a run.

    Attributes:
        ever_healthy: the run has had a simulator that answers and ticks.
    """

    def __init__(self, run: Run, monitor: Monitor, ladder: LadderState, figures: SimulatorFigures) -> None:
        self.ever_healthy = False
        self._run, self._monitor, self._ladder, self._figures = run, monitor, ladder, figures
        self._config, self._journal, self._say = run.config, run.journal, run.say
        self._agent_stopped = False  # stopped for a step that was taken because the simulator couldn't start

    def decide(self, finding: Finding, seen: Observation) -> Decision:
        """Return the decision about a finding; each call for a failed program counts one failure."""
        if finding.cause in policy.SHORT and not self._ladder.settled:
            return Nothing()
        if finding.cause is Cause.LEAK and finding.owner == "agent" and not self._run.spec.resumes:
            return Nothing("it can't resume, so it goes on until memory is short")
        run, failures = self._run, 0
        if finding.cause in policy.SIMULATOR_FAILED:
            failures = run.count_failure(run.simulator)
        elif finding.cause is Cause.CONTAINER_LOST_GPU:
            failures = self._gpu_losses_in_a_row()
        elif finding.cause in policy.AGENT_FAILED:
            failures = run.count_failure(run.agent)
        elif finding.cause is Cause.LEAK:
            failures = self._leaks_in_a_row(finding.owner)
        context, draw = self._ladder.context(seen), run.effects.draw()
        return policy.decide(finding, failures, self.ever_healthy, context, self._config, draw)

    def _leaks_in_a_row(self, program: str) -> int:
        """Return the number of restarts for leaks in a row, counting one now."""
        well_s = self._run.program(program).up_for_s(self._run.now_s)
        before = self._journal.state.leak_restarts.get(program, 0)
        return failures_in_a_row(before, well_s, self._config.memory.leak_restarts)

    def _gpu_losses_in_a_row(self) -> int:
        """Return how often in a row the agent's container lost the GPU, counting one now."""
        up_s = self._run.agent.up_for_s(self._run.now_s)
        losses = failures_in_a_row(self._journal.state.gpu_losses, up_s, self._config.agent.restarts)
        self._journal.change(gpu_losses=losses)
        return losses

    def perform(self, decision: Decision, incident: str = "") -> Script:
        """Carry a decision out. Everything recorded meanwhile belongs to the incident, a new one if none is given.

        Raises:
            RunOverError: the run ends; the incident stays the present one.
        """
        before = self._journal.handle(incident or self._journal.open_incident())
        yield from self._carry_out(decision)
        self._journal.handle(before)

    def _carry_out(self, decision: Decision) -> Script:
        match decision:
            case Stop(ending):
                if ending.code == Exit.BUDGET_SPENT:
                    self._journal.event(LauncherEvent.CRASH_LOOP, ending.reason)
                raise RunOverError(ending)
            case RestartSimulator(cause, delay_s, failed):
                self._count_leak("simulator", failed)
                yield from self._replace_simulator(cause, failed, delay_s)
            case RestartAgent(cause, delay_s, failed):
                self._count_leak("agent", failed)
                yield from self.replace_agent(cause, failed, delay_s, decision.simulator_too)
            case Degrade():
                yield from self._degrade(decision)
            case Restore():
                yield from self._restore()
        self._ladder.changed()

    def _count_leak(self, program: str, failed: bool) -> None:
        if not failed:
            counted = {**self._journal.state.leak_restarts, program: self._leaks_in_a_row(program)}
            self._journal.change(leak_restarts=counted)

    def ensure_simulator(self) -> Script:
        """Wait until a simulator answers and ticks; restart it within the budget."""
        before = self._journal.state.incident
        while True:
            yield from self._wait_for_foreign_processes()
            fresh = self._run.simulator.child is None
            failed = yield from self._run.start_simulator()
            if failed is None:
                break
            yield from self._start_failed(failed)
        self.ever_healthy = True
        self._figures.reset(fresh)
        seen = self._monitor.look()
        self._monitor.fresh = False  # this look is handled, and the one before was of another simulator
        for fatal in (each for each in self._monitor.findings if each.cause in policy.FATAL):
            yield from self.perform(self.decide(fatal, seen), fatal.incident)
        self._journal.handle(before)

    def _wait_for_foreign_processes(self) -> Script:
        """Wait while foreign processes hold the memory that a new simulator needs, since it would crash again."""
        seen = self._monitor.look()
        while self._run.simulator_is_dead and (taken := self._figures.taken_by_others(seen)):
            self._set_incident(self._monitor.incident_of(taken))
            self._monitor.remark(taken, WAITS)
            yield
            seen = self._monitor.last

    def _set_incident(self, incident: str) -> None:
        """Set the incident of what follows: the present one, else this one, else a new one."""
        self._journal.handle(self._journal.state.incident or incident or self._journal.open_incident())

    def degrade_before_start(self, finding: Finding) -> None:
        """Take steps before any program starts, since the whole last launcher was killed for lack of memory.

        Raises:
            RunOverError: no step is left.
        """
        match self.decide(finding, self._monitor.look()):
            case Stop(ending):
                raise RunOverError(ending)
            case Degrade() as decision:
                self._take_before_start(decision)

    def _take_before_start(self, decision: Degrade) -> None:
        self._ladder.take(decision)
        self._say(f"{decision.cause}: starts with {_in_words(decision.steps)}")

    def ensure_memory(self) -> Script:
        """Wait until the agent's memory is free, with steps down if needed."""
        since_s, seen, before = self._run.now_s, self._monitor.look(), self._journal.state.incident
        while (short := self._missing_for_agent(seen)) is not None:
            kind, finding = short
            self._set_incident(self._monitor.incident_of(finding))
            deficit = Deficit(kind, finding.deficit_mib, finding.pool)
            if steps := self._ladder.context(seen).choose(deficit, lasting=True):
                self._take_before_start(Degrade(steps, kind, finding.sentence))
                continue
            self._monitor.remark(finding, WAITS)
            first = self._journal.state.agent_restarts == 0  # a run that has begun waits without a limit
            if first and self._run.now_s - since_s >= self._config.memory.foreign_patience_s:
                raise RunOverError(Ending(Exit.OUT_OF_MEMORY, f"{finding.sentence}{_wait_hint(finding, seen)}"))
            yield
            seen = self._monitor.last
        self._journal.handle(before)

    def start_agent(self, resume: bool) -> None:
        """Start the agent; if it can't be started the run ends."""
        try:
            self._run.start_agent(resume)
        except StartError as error:
            raise RunOverError(Ending(Exit.BAD_CONFIG, str(error))) from error
        self._agent_stopped = False
        self._journal.unverified = self._journal.state.incident
        self._journal.change(agent_figures_doubted="")
        self._monitor.fresh = False  # the last observation is of the agent before

    def replace_agent(
        self, cause: str, failed: bool = False, delay_s: float = 0.0, simulator_too: bool = False
    ) -> Script:
        """Restart the agent with the present values; unless it failed, it writes a checkpoint first."""
        self._run.count_restart(self._run.agent, cause, delay_s)
        how = "resumes from its checkpoint" if self._run.spec.resumes else "begins from the start"
        self._say(f"{cause}: the agent is restarted and {how}")
        if failed:
            self._run.agent.kill(cause)
        else:
            yield from self._checkpoint_and_stop_agent(cause)
        self._run.agent.back_off(self._run.now_s + delay_s)
        yield from self._run.back_off(self._run.agent)
        fresh = self._run.spec.wants_fresh_simulator and self._run.simulator.started_s < self._run.agent.started_s
        if self._run.simulator_is_dead or fresh or (simulator_too and self._run.spec.simulator.ours):
            self._run.discard_simulator("the agent gets a fresh one" if fresh else "it failed")
            yield from self.ensure_simulator()
        yield from self.ensure_memory()
        self.start_agent(resume=True)

    def _checkpoint_and_stop_agent(self, cause: str) -> Script:
        if self._run.agent_listens:
            yield from self._run.request("checkpoint")
        yield from self._run.stop_agent(cause)

    def _start_failed(self, failed: Finding) -> Script:
        seen = self._monitor.look()
        finding = self._with_reason(failed)
        self._set_incident(finding.incident)
        decision = self.decide(finding, seen)
        if not self.ever_healthy and finding.exit_code not in policy.SIMULATOR_REFUSALS:
            self.show_log(self._run.simulator)
        self._run.discard_simulator()
        self._journal.event(
            LauncherEvent.SIMULATOR_FAILED, finding.sentence, diagnosis=finding.cause.value, exit_code=finding.exit_code
        )
        match decision:
            case RestartSimulator(cause, delay_s):
                self._restart_simulator(cause, delay_s)
            case Degrade(steps, _, cause):
                self._ladder.take(decision)
                if any(step.does.restarts is OwnerKind.AGENT for step in steps) and self._run.agent.is_running:
                    yield from self._run.stop_agent(cause)
                    self._agent_stopped = True
            case _:
                yield from self.perform(decision, self._journal.state.incident)

    def show_log(self, program: SupervisedProcess) -> None:
        """Say what a program said last."""
        if program.child is not None:
            self._say(f"the end of {program.child.log}:\n{program.last_output(LOG_LINES_SHOWN)}")

    def _with_reason(self, failed: Finding) -> Finding:
        """Return the cause of a failed start by log or kernel, else that the simulator wasn't ready."""
        last_words, code = self._run.simulator.last_output().rstrip("."), failed.exit_code
        said = f": {last_words}" if last_words else ""
        # That it isn't ready is what the agent says, if it waited in vain.
        known = {*policy.FATAL, *policy.SIMULATOR_FAILED} - {Cause.SIMULATOR_NOT_READY}
        finding = next((each for each in policy.gravest(self._monitor.findings) if each.cause in known), failed)
        hint = f"; {vulkan.NO_REASON}" if self._ended_without_reason(finding, code) else ""
        return dataclasses.replace(finding, sentence=finding.sentence + said + hint, exit_code=code)

    def _ended_without_reason(self, finding: Finding, code: int | None) -> bool:
        """Return whether CARLA ended during its start, without a signal or a reason in its log."""
        child = self._run.simulator.child
        ran = child is not None and child.pid > 0
        carla = self._run.spec.simulator.needs_card and not self.ever_healthy
        by_itself = code is not None and code < SIGNALLED and code not in policy.SIMULATOR_REFUSALS
        return ran and carla and by_itself and finding.cause in UNEXPLAINED and not finding.numbers.get("log")

    def _replace_simulator(self, cause: str, failed: bool, delay_s: float = 0.0) -> Script:
        if not self._run.spec.reconnects:
            yield from self._stop_agent_with_simulator(cause, failed)
        elif not failed and self._run.agent_listens:
            yield from self._run.drain(cause)
        self._run.enter(State.APPLYING)
        if failed:
            self._run.discard_simulator()
        else:
            yield from self._run.stop_simulator()
            self._run.further.restart(cause)  # the figure of all together doesn't say which one grew
        self._restart_simulator(cause, delay_s)
        yield from self.ensure_simulator()
        if self._agent_stopped:
            yield from self.replace_agent(cause, failed=True)
        elif self._run.drained:
            yield from self._run.resume()

    def _stop_agent_with_simulator(self, cause: str, failed: bool) -> Script:
        """End an agent that can't go on in another simulator; it is started again once there is one."""
        if failed:
            yield from self._run.stop_agent(cause)
        else:
            yield from self._checkpoint_and_stop_agent(cause)
        self._agent_stopped = True

    def _restart_simulator(self, cause: str, delay_s: float) -> None:
        self._run.count_restart(self._run.simulator, cause, delay_s)
        self._run.simulator.back_off(self._run.now_s + delay_s)
        self._say(f"{cause}: the simulator is restarted in {delay_s:.1f} s, the agent waits for it")

    def _degrade(self, decision: Degrade) -> Script:
        steps, cause = decision.steps, decision.cause
        self._ladder.take(decision)
        self._ladder.degraded()
        self._say(f"{cause}: takes {_in_words(steps)}")
        restarts = {step.does.restarts for step in steps}
        yield from self._change(restarts, merged_values({}, *(step.values for step in steps)), cause)

    def _restore(self) -> Script:
        taken, back = self._ladder.restore()
        self._say(f"memory is free again: {taken} is restored")
        yield from self._change({self._ladder.restarted_to_restore(taken)}, back, f"restores {taken}")

    def _change(self, restarts: Collection[OwnerKind | None], values: dict[str, object], cause: str) -> Script:
        """Take or undo rungs, with at most one restart of each program; a program that has ended is restarted."""
        if OwnerKind.SIMULATOR in restarts or self._run.simulator_is_dead:
            if OwnerKind.AGENT in restarts:
                yield from self._checkpoint_and_stop_agent(cause)
            yield from self._replace_simulator(cause, failed=self._run.simulator_is_dead)
            if not self._run.spec.reconnects:
                return  # the agent was started again with it
        if OwnerKind.AGENT in restarts or not self._run.agent.is_running:
            yield from self.replace_agent(cause, failed=not self._run.agent.is_running)
        elif values:
            yield from self._apply(values, cause)

    def _apply(self, values: dict[str, object], cause: str) -> Script:
        """Let the running agent apply values; if it can't, restart it with them."""
        self._run.enter(State.APPLYING)
        with contextlib.suppress(StartError):  # the error is recorded, and the running agent applies the values anyway
            self._run.write_overrides()
        if self._run.agent_listens:
            answer = yield from self._run.request("apply", values)
            if answer is not None and answer.ok:
                return
        yield from self.replace_agent(cause, failed=not self._run.agent.is_running)

    def _missing_for_agent(self, seen: Observation) -> tuple[PoolKind, Finding] | None:
        reserve_mib = self._config.memory.reserve_mib
        needs_mib, holders = self._ladder.agent_needs(), self._run.effects.holders
        return missing_for_agent(needs_mib, reserve_mib, seen.memory, holders, self._run.spec.cards)


def _wait_hint(finding: Finding, seen: Observation) -> str:
    pool = seen.memory.pool(finding.pool)
    if pool is None or pool.free.mib is None or pool.kind is PoolKind.DISK:
        return ""
    return f"; `{wait_command(pool, pool.free.mib + finding.deficit_mib)}` waits until that is free"


def _in_words(steps: Sequence[RungStep]) -> str:
    named = ", ".join(f"{step} ({step.cost})" if step.cost else str(step) for step in steps)
    return f"the rung{'s' if len(steps) > 1 else ''} {named}"
