"""How decisions are carried out: simulator or agent replaced, a step taken or taken back, each with its record first.

Owns the order within one repair. ``ManagedProcesses`` does the single things, ``RestartBudgets``
counts the starts that fail on the way.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Sequence

from carla_launcher.act.effects import Effects, State
from carla_launcher.act.journal import Journal
from carla_launcher.act.ladder_state import LadderState
from carla_launcher.act.managed_processes import ManagedProcesses, Script, SimulatorFailedError
from carla_launcher.act.monitor import Monitor
from carla_launcher.act.restart_budgets import RestartBudgets
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.run_state import RunState
from carla_launcher.act.runtime import Role, StartError
from carla_launcher.config import Does, LauncherConfig
from carla_launcher.decide import policy
from carla_launcher.decide.choose import Lack
from carla_launcher.decide.decisions import Decision, Degrade, Ending, RestartAgent, RestartSimulator, Restore, Stop
from carla_launcher.decide.detectors import vulkan
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.ladder import Step, laid_over
from carla_launcher.decide.room import missing_for_agent, wait_command
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import PoolKind
from carla_launcher.options import SimulatorKind
from carla_run.events import LauncherEvent
from carla_run.exits import Exit
from carla_run.readers import last_lines

LOG_LINES_SHOWN = 12
WAITS = "waits for it to become free"
SIGNALLED = 128
UNEXPLAINED = (Cause.SIMULATOR_CRASH, Cause.SIMULATOR_NOT_READY)


class RunOverError(Exception):
    """The run is to end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Repairs:
    """What can be done to a run."""

    def __init__(
        self,
        spec: RunSpec,
        config: LauncherConfig,
        effects: Effects,
        journal: Journal,
        processes: ManagedProcesses,
        monitor: Monitor,
        ladder: LadderState,
        budgets: RestartBudgets,
        run_state: RunState,
    ) -> None:
        self._spec, self._config, self._effects, self._journal = spec, config, effects, journal
        self._processes, self._monitor, self._ladder, self._budgets = processes, monitor, ladder, budgets
        self._run_state = run_state
        self._agent_away = False  # stopped for a step that was taken while the simulator couldn't start

    def perform(self, decision: Decision, incident: str = "") -> Script:
        """Carry a decision out; all that is recorded meanwhile carries the incident, a new one where none is given.

        Raises:
            RunOverError: the decision, or what came of it, ends the run; the incident stays at hand.
        """
        before = self._run_state.handle(incident or self._run_state.open_incident())
        yield from self._carry_out(decision)
        self._run_state.handle(before)

    def _carry_out(self, decision: Decision) -> Script:
        if isinstance(decision, Stop):
            if decision.ending.code == Exit.BUDGET_SPENT:
                self._journal.event(LauncherEvent.CRASH_LOOP, decision.ending.reason)
            raise RunOverError(decision.ending)
        if isinstance(decision, RestartSimulator | RestartAgent) and not decision.failed:
            self._budgets.restarts_for_leak("simulator" if isinstance(decision, RestartSimulator) else "agent")
        if isinstance(decision, RestartSimulator):
            yield from self._replace_simulator(decision.cause, decision.failed, decision.delay_s)
        elif isinstance(decision, RestartAgent):
            yield from self.replace_agent(
                decision.cause, decision.failed, decision.delay_s, simulator_too=decision.simulator_too
            )
        elif isinstance(decision, Degrade):
            yield from self._degrade(decision)
        elif isinstance(decision, Restore):
            yield from self._restore()
        self._ladder.changed(self._processes.now_s)

    def have_simulator(self, delay_s: float = 0.0) -> Script:
        """Return when a simulator answers and ticks; start it again as often as the budget allows."""
        before = self._run_state.now.incident
        while True:
            yield from self._let_foreign_processes_go()
            fresh = self._processes.simulator is None
            try:
                yield from self._processes.bring_simulator(delay_s)
            except SimulatorFailedError as failure:
                delay_s = yield from self._start_failed(failure)
            else:
                self._budgets.ever_healthy = True
                self._ladder.simulator_is_new(fresh)
                seen = self._monitor.look()
                self._monitor.fresh = False  # this look is spent, and the one before was of another simulator
                for fatal in (each for each in self._monitor.findings if each.cause in policy.FATAL):
                    yield from self.perform(self._budgets.decide(fatal, seen), fatal.incident)
                self._run_state.handle(before)
                return

    def _let_foreign_processes_go(self) -> Script:
        """Wait while foreign processes have the memory that a new simulator needs: it would only crash again."""
        seen = self._monitor.look()
        while self._simulator_is_dead and (
            taken := self._ladder.foreign_process_in_the_way(seen, self._effects.holders)
        ):
            self._belongs_to(self._monitor.incident_of(taken))
            self._monitor.remark(taken, WAITS)
            yield
            seen = self._monitor.last

    def _belongs_to(self, incident: str) -> None:
        """Have what follows carry the incident at hand, else this one, else a new one."""
        self._run_state.handle(self._run_state.now.incident or incident or self._run_state.open_incident())

    def give_way(self, finding: Finding) -> None:
        """Take the steps, before anything is started, for want of which the launcher before was killed with all it had.

        Raises:
            RunOverError: there are none left.
        """
        decision = self._budgets.decide(finding, self._monitor.look())
        if isinstance(decision, Stop):
            raise RunOverError(decision.ending)
        if isinstance(decision, Degrade):
            self._ladder.take(decision)
            self._effects.say(f"{finding.sentence}: starts with {_in_words(decision.steps)}")

    def have_room(self) -> Script:
        """Return when what the agent will take is free, by steps down if need be; wait for foreign memory."""
        since_s, seen, before = self._processes.now_s, self._monitor.look(), self._run_state.now.incident
        while (short := self._missing_for_agent(seen)) is not None:
            kind, finding = short
            self._belongs_to(self._monitor.incident_of(finding))
            lack = Lack(kind, finding.deficit_mib, finding.pool)
            if steps := self._ladder.ground(seen).choose(lack, lasting=True):
                self._ladder.take(Degrade(steps, kind, finding.sentence))
                self._effects.say(f"{finding.sentence}: starts with {_in_words(steps)}")
                continue
            self._monitor.remark(finding, WAITS)
            first = self._run_state.now.agent_restarts == 0  # a run that is under way has all the time there is
            if first and self._processes.now_s - since_s >= self._config.memory.foreign_patience_s:
                raise RunOverError(Ending(Exit.OUT_OF_MEMORY, f"{finding.sentence}{_way_to_wait(finding, seen)}"))
            yield
            seen = self._monitor.last
        self._run_state.handle(before)

    def start_agent(self, resume: bool) -> None:
        """Start the agent; one that can't be started at all ends the run."""
        try:
            self._processes.start_agent(resume)
        except StartError as error:
            raise RunOverError(Ending(Exit.BAD_CONFIG, str(error))) from error
        self._agent_away = False
        self._run_state.agent_starts()
        self._monitor.fresh = False  # what was seen last is of the agent before

    def replace_agent(
        self, cause: str, failed: bool = False, delay_s: float = 0.0, simulator_too: bool = False
    ) -> Script:
        """Start the agent again with the values that hold; unless it failed, it writes a checkpoint first."""
        self._run_state.count_restart(Role.AGENT)
        self._journal.event(LauncherEvent.AGENT_RESTART, cause, delay_s=round(delay_s, 2))
        self._effects.say(f"{cause}: the agent is started again and goes on from its checkpoint")
        if failed:
            self._processes.kill_agent(cause)
        else:
            yield from self._put_agent_away(cause)
        yield from self._processes.pause(delay_s)
        if self._simulator_is_dead or (simulator_too and self._spec.simulator_ours):
            self._processes.lose_simulator()
            yield from self.have_simulator()
        yield from self.have_room()
        self.start_agent(resume=True)

    def _put_agent_away(self, cause: str) -> Script:
        if self._processes.agent_listens:
            yield from self._processes.ask("checkpoint")
        yield from self._processes.stop_agent(cause)

    def _start_failed(self, failure: SimulatorFailedError) -> Generator[None, None, float]:
        """Return the delay before the next start."""
        seen = self._monitor.look()
        finding = self._named(failure)
        self._belongs_to(finding.incident)
        decision = self._budgets.decide(finding, seen)
        if not self._budgets.ever_healthy and finding.exit_code not in policy.SIMULATOR_REFUSALS:
            self._show_log()
        self._processes.lose_simulator()
        self._journal.event(
            LauncherEvent.SIMULATOR_FAILED, finding.sentence, diagnosis=finding.cause.value, exit_code=finding.exit_code
        )
        if isinstance(decision, RestartSimulator):
            self._tell_restart(decision.cause, decision.delay_s)
            return decision.delay_s
        if isinstance(decision, Degrade):
            self._ladder.take(decision)
            if any(step.does is Does.RESTART_AGENT for step in decision.steps) and self._processes.agent_lives:
                yield from self._processes.stop_agent(decision.cause)
                self._agent_away = True
            return 0.0
        yield from self.perform(decision, self._run_state.now.incident)
        return 0.0

    def _show_log(self) -> None:
        if (simulator := self._processes.simulator) is not None:
            self._effects.say(f"the end of {simulator.log}:\n{last_lines(simulator.log, LOG_LINES_SHOWN)}")

    def _named(self, failure: SimulatorFailedError) -> Finding:
        """Return the finding that the log or the kernel gives a failed start; else it just wasn't ready."""
        code = None if failure.ended is None else failure.ended.code
        said = f": {failure.last_words}" if failure.last_words else ""
        known = (*policy.FATAL, *policy.SIMULATOR_FAILED)
        named = [each for each in policy.gravest(self._monitor.findings) if each.cause in known]
        finding = named[0] if named else Finding(Cause.SIMULATOR_NOT_READY, failure.cause)
        hint = f"; {vulkan.WITHOUT_A_WORD}" if self._ended_without_a_word(finding, code) else ""
        return dataclasses.replace(finding, sentence=finding.sentence + said + hint, exit_code=code)

    def _ended_without_a_word(self, finding: Finding, code: int | None) -> bool:
        """Return whether a CARLA that did run has ended as it started, by no signal, and its log says nothing of it."""
        ran = self._processes.simulator is not None and self._processes.simulator.pid > 0
        carla = self._spec.options.simulator is SimulatorKind.CARLA and not self._budgets.ever_healthy
        by_itself = code is not None and code < SIGNALLED and code not in policy.SIMULATOR_REFUSALS
        return ran and carla and by_itself and finding.cause in UNEXPLAINED and not finding.numbers.get("log")

    def _replace_simulator(self, cause: str, failed: bool, delay_s: float = 0.0) -> Script:
        if not failed and self._processes.agent_listens:
            yield from self._processes.drain(cause)
        self._processes.enter(State.APPLYING)
        if failed:
            self._processes.lose_simulator()
        else:
            yield from self._processes.stop_simulator()
        self._tell_restart(cause, delay_s)
        yield from self.have_simulator(delay_s)
        if self._agent_away:
            yield from self.replace_agent(cause, failed=True)
        elif self._processes.drained:
            yield from self._processes.resume()

    def _tell_restart(self, cause: str, delay_s: float) -> None:
        self._run_state.count_restart(Role.SIMULATOR)
        self._journal.event(LauncherEvent.SIMULATOR_RESTART, cause, delay_s=round(delay_s, 2))
        self._effects.say(f"{cause}: the simulator is started again in {delay_s:.1f} s, the agent waits for it")

    def _degrade(self, decision: Degrade) -> Script:
        """Take all steps with one restart of either program at most."""
        steps, cause, processes = decision.steps, decision.cause, self._processes
        self._ladder.take(decision)
        self._ladder.degraded(processes.now_s)
        self._effects.say(f"{cause}: gives way by {_in_words(steps)}")
        does = {step.does for step in steps}
        if does & {Does.RESTART_SIMULATOR, Does.QUALITY} or self._simulator_is_dead:
            if Does.RESTART_AGENT in does:
                yield from self._put_agent_away(cause)
            yield from self._replace_simulator(cause, failed=self._simulator_is_dead)
        if Does.RESTART_AGENT in does or not processes.agent_lives:
            yield from self.replace_agent(cause, failed=not processes.agent_lives)
        elif Does.APPLY in does:
            values = laid_over({}, *(step.values for step in steps if step.does is Does.APPLY))
            yield from self._apply(values, cause)

    def _restore(self) -> Script:
        taken, back = self._ladder.restore(self._processes.now_s)
        self._effects.say(f"memory is back: {taken} is taken back")
        does, cause = self._ladder.does(taken), f"restores {taken}"
        if does is Does.QUALITY:
            yield from self._replace_simulator(cause, failed=False)
        elif does is Does.APPLY:
            yield from self._apply(back, cause)
        else:
            yield from self.replace_agent(cause)

    def _apply(self, values: dict[str, object], cause: str) -> Script:
        """Have the running agent take values; where it can't, it is started again with them."""
        self._processes.enter(State.APPLYING)
        with contextlib.suppress(StartError):  # it is journalled, and the running agent takes them all the same
            self._processes.lay()
        if self._processes.agent_listens:
            answer = yield from self._processes.ask("apply", values)
            if answer is not None and answer.ok:
                return
        yield from self.replace_agent(cause, failed=not self._processes.agent_lives)

    def _missing_for_agent(self, seen: Observation) -> tuple[PoolKind, Finding] | None:
        reserve_mib = self._config.memory.reserve_mib
        needs_mib, holders = self._ladder.agent_needs(), self._effects.holders
        return missing_for_agent(needs_mib, reserve_mib, seen.memory, holders, self._spec.cards)

    @property
    def _simulator_is_dead(self) -> bool:
        simulator = self._processes.simulator
        return self._spec.simulator_ours and (simulator is None or simulator.poll() is not None)


def _way_to_wait(finding: Finding, seen: Observation) -> str:
    pool = seen.memory.pool(finding.pool)
    if pool is None or pool.free.mib is None or pool.kind is PoolKind.DISK:
        return ""
    return f"; `{wait_command(pool, pool.free.mib + finding.deficit_mib)}` waits until that is free"


def _in_words(steps: Sequence[Step]) -> str:
    return ", ".join(f"{step} ({step.cost})" for step in steps)
