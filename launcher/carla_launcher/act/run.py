"""A run: its state, its journal and its programs. Generators start the programs, send requests and stop them; they wait
by yielding.

Owns which ends were requested, and the order of actions: each action is recorded before it is taken. So if the launcher
is killed in between, the next launcher knows the intention. Decides nothing: the caller decides what is restarted, and
why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from carla_launcher.act.effects import Effects, State
from carla_launcher.act.further_simulators import FurtherSimulators
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import ProcessState
from carla_launcher.act.program import ProgramState, Script, SupervisedProcess, Transition, Waiting
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Child, Role, StartError
from carla_launcher.act.standstills import Standstills
from carla_launcher.act.unfit_checkpoints import UnfitCheckpoints
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.ladder import overrides
from carla_launcher.observe.health import Health
from carla_launcher.observe.observation import SimulatorSeen
from carla_run.events import LauncherEvent
from carla_run.requests import Answer

WAITING_S = 10.0
"""Interval between two lines that say what the launcher waits for."""


class Run:
    """One run.

    Attributes:
        state: of the run.
        drained: the agent waits for ``resume``.
        warm: the agent has finished its warm-up, and answers requests.
        checkpoints: what the program can't start from is set aside.
    """

    def __init__(self, spec: RunSpec, config: LauncherConfig, effects: Effects, journal: Journal) -> None:
        self.state = State.INIT
        self.drained = self.warm = False
        self.spec, self.config, self.effects, self.journal = spec, config, effects, journal
        self.say = effects.say
        before, kind = journal.state, spec.simulator
        self.simulator = SupervisedProcess(
            effects.runtime if kind.ours else None,
            Role.SIMULATOR,
            config.simulator,
            failures=before.simulator_failures,
            start_limit=kind.start_limit(config.simulator),
            tell=self._on_transition,
        )
        self.agent = SupervisedProcess(
            effects.runtime, Role.AGENT, config.agent, failures=before.agent_failures, tell=self._on_transition
        )
        self.further = FurtherSimulators(kind, config, effects, journal)
        self.standstills = Standstills(journal, spec.resumes)
        self.checkpoints = UnfitCheckpoints(spec.run, spec.command, journal, effects.say)

    @property
    def now_s(self) -> float:
        """Return the clock's time."""
        return self.effects.clock.monotonic()

    @property
    def quality(self) -> str | None:
        """Return the simulator's quality on the present rung."""
        state = self.journal.state
        return next((taken.quality for taken in reversed(state.taken) if taken.quality), state.quality)

    @property
    def agent_listens(self) -> bool:
        """Return whether the agent answers requests: it runs, and has finished its warm-up."""
        return self.agent.is_running and self.warm

    @property
    def simulator_is_dead(self) -> bool:
        """Return whether a simulator must be started here."""
        return self.spec.simulator.ours and not self.simulator.is_running

    @property
    def missing(self) -> list[str]:
        """Return what training waits for: programs that aren't up, or ``resume`` after a drain."""
        there = {
            "simulator": self.simulator.is_up,
            "agent": self.agent_listens,
            "resume": not self.drained,
        }
        return [name for name, is_there in there.items() if not is_there]

    def program(self, name: str) -> SupervisedProcess:
        """Return simulator or agent by its name."""
        return self.simulator if name == Role.SIMULATOR.value else self.agent

    def enter(self, state: State) -> None:
        """Record the run's state and its programs' process ids. A container's id is known only after its start."""
        if state is self.state:
            return
        self.state = state
        self.journal.change(state=state.value)
        for program in (self.simulator, self.agent):
            shown: ProcessState | None = getattr(self.journal.state, program.name)
            if shown is not None and program.child is not None:
                self.journal.change(**{program.name: replace(shown, pid=program.child.pid or shown.pid)})
        self.journal.save()  # save now: the next change may come hours later

    def adopt(self) -> None:
        """Take over the programs that an earlier launcher left running. Kill a simulator that has another quality."""
        before = self.journal.state.simulator
        for program in (self.simulator, self.agent):
            child = self.effects.runtime.left(program.role)
            if child is not None:
                program.adopt(child, self.now_s)
                self._record(program)
                self._log_transition(program, Transition.ADOPTED, "left by an earlier launcher", pid=child.pid)
                self.say(f"takes over the {program.name} that an earlier launcher started, process {child.pid}")
        if self.simulator.child is not None and before is not None and before.quality != self.quality:
            self.discard_simulator()
        if self.agent.child is not None:
            self.agent.mark_up(self.now_s)
            self.standstills.training_resumed(self.journal.state.incident)

    def count_restart(self, program: SupervisedProcess, cause: str, delay_s: float) -> None:
        """Count a restart of simulator or agent. The restart itself follows after the delay."""
        key = f"{program.name}_restarts"
        self.journal.change(**{key: getattr(self.journal.state, key) + 1})
        self._log_transition(program, Transition.RESTART, cause, delay_s=round(delay_s, 2))

    def count_failure(self, program: SupervisedProcess) -> int:
        """Count a failure of simulator or agent, and return how many there were in a row."""
        failures = program.count_failure(self.now_s)
        self.journal.change(**{f"{program.name}_failures": failures})
        return failures

    # Records about simulator and agent

    def _on_transition(self, program: SupervisedProcess, move: Transition, cause: str) -> None:
        child, ended = program.child, program.ended
        if move in (Transition.ENDS, Transition.KILLED) and child is not None:
            self.effects.observer.expect_end(child)
        match move:
            case Transition.STARTS:
                self._record(program)
                self._log_transition(program, move, **self._start_in_figures(program))
            case Transition.STARTED if child is not None:
                self._record(program)
                self._log_transition(program, move, pid=child.pid, log=str(child.log))
                where = f" at {self.spec.address}" if program is self.simulator else ""
                self.say(f"{program.name} starts{where}, process {child.pid or 'not known yet'}, log {child.log}")
            case Transition.ENDS:
                self.journal.save()
            case Transition.KILLED:
                self._log_transition(program, move, cause)
                self.say(f"the {program.name} is killed: {cause}")
            case Transition.STOPPED:
                self._log_transition(program, move, exit_code=ended.code if ended else None)

    def _log_transition(self, program: SupervisedProcess, move: Transition, cause: str = "", **numbers: Any) -> None:
        self.journal.event(LauncherEvent(f"{program.role.value}_{move.value}"), cause, **numbers)

    def _start_in_figures(self, program: SupervisedProcess) -> dict[str, Any]:
        if program is self.simulator:
            return {"port": self.spec.address.port, "quality": program.last.quality}
        return {"resume": program.last.resume, "overrides": overrides(self.journal.state.taken)}

    def _record(self, program: SupervisedProcess) -> None:
        """Record a program's process. If it has none yet, record that it is about to start."""
        quality, child = self.quality if program is self.simulator else None, program.child
        shown = ProcessState(quality=quality) if child is None else ProcessState(child.pid, str(child.log), quality)
        self.journal.change(**{program.name: shown})

    # The simulator

    def start_simulator(self) -> Waiting[Finding | None]:
        """Start the simulator when it is due, unless it already runs. Return None when it answers and ticks.

        If it fails, return the finding; then call :meth:`discard_simulator` to end what still runs.
        """
        simulator, said_s, health = self.simulator, self.now_s, Health()

        def probe(_now_s: float, _child: Child | None) -> tuple[SimulatorSeen, Finding | None]:
            nonlocal health
            if (ended := simulator.ended) is not None:
                sentence = f"the simulator ended during its start ({ended})"
                return SimulatorSeen(False), Finding(Cause.SIMULATOR_NOT_READY, sentence, exit_code=ended.code)
            health = self.effects.check(self.agent.child is not None and not self.drained)
            return SimulatorSeen(True, healthy=health.ok, problem=health.problem), None

        if not self.spec.sees_simulator:  # on a cluster each node has its own simulator; or the run has none
            simulator.mark_up(self.now_s)
            return None
        yield from self.back_off(simulator)
        self.enter(State.STARTING_SIMULATOR)
        while (moved := simulator.look(self.now_s, self.quality, probe)) is not ProgramState.UP:
            if isinstance(moved, Finding):
                return moved
            if moved is ProgramState.STARTING:
                said_s = self.now_s
                continue
            if self.now_s - said_s >= WAITING_S:
                said_s = self.now_s
                waited = f"{self.now_s - simulator.started_s:.0f} of {simulator.start_limit[1]:g} s"
                self.say(f"waits for the simulator at {self.spec.address} ({waited}): {health.problem}")
            yield
        took_s = round(self.now_s - simulator.started_s, 2)
        self.journal.event(LauncherEvent.SIMULATOR_HEALTHY, took_s=took_s, version=health.version, frame=health.frame)
        self.say(f"simulator {health.version} answers and ticks after {took_s:.1f} s")
        return None

    def discard_simulator(self, cause: str = "it failed") -> None:
        """Kill a simulator that failed or will be replaced, if it still runs, and forget it."""
        self.simulator.forget(cause)

    def stop_simulator(self) -> Script:
        """Stop the simulator. Kill it after its grace period, or at a second request to stop."""
        if self.simulator.is_running:
            self.enter(State.STOPPING_SIMULATOR)
            yield from self.simulator.stop(lambda: self.now_s, self.effects.stop.cut_short)
        self.simulator.forget()

    # The agent

    def start_agent(self, resume: bool) -> None:
        """Write the values of the rungs taken so far, and start the agent.

        Raises:
            StartError: it can't be started.
        """
        self.enter(State.WARMING)
        self.write_overrides()
        self.agent.forget()
        self.standstills.resumes = self.spec.resumes  # before it can write its first checkpoint
        self.agent.start(self.now_s, resume=resume)
        self.agent.mark_up(self.now_s)
        self.drained = self.warm = False

    def write_overrides(self) -> None:
        """Write the values of the rungs taken so far, for the agent's next start.

        Raises:
            StartError: they can't be written. The agent would start without them.
        """
        try:
            self.effects.requests.write_overrides(overrides(self.journal.state.taken))
        except OSError as error:
            self.journal.event(LauncherEvent.OVERRIDES_FAILED, str(error))
            raise StartError(
                f"The agent's overrides.yaml can't be written ({error.strerror}): free disk space in the run's folder."
            ) from error

    def request(self, kind: str, values: Mapping[str, Any] | None = None) -> Waiting[Answer | None]:
        """Send the agent a request and return its answer; None if it ended or didn't answer in time."""
        requests = self.effects.requests
        try:
            number = requests.send(kind, values)
        except OSError as error:
            self.journal.event(LauncherEvent.REQUEST_FAILED, str(error), kind=kind)
            return None
        self.journal.event(LauncherEvent.REQUEST, kind=kind, id=number, values=dict(values or {}))
        deadline_s = self.now_s + self.config.agent.answer_limit_s
        while self.agent.is_running and self.now_s < deadline_s:
            if (answer := requests.answer(number)) is not None:
                event, said = LauncherEvent.REQUEST_ANSWERED, answer.sentence
                self.journal.event(event, said, kind=kind, id=number, ok=answer.ok)
                return answer
            yield
        answer = requests.answer(number)
        event = LauncherEvent.REQUEST_ANSWERED if answer else LauncherEvent.REQUEST_UNANSWERED
        self.journal.event(event, kind=kind, id=number)
        return answer

    def drain(self, cause: str) -> Script:
        """Let the agent write a checkpoint and release the simulator; it then waits for ``resume``."""
        self.enter(State.DRAINING)
        self.journal.event(LauncherEvent.DRAINING, cause)
        answer = yield from self.request("drain")
        self.drained = answer is not None and answer.ok

    def resume(self) -> Script:
        """Let a drained agent drive again."""
        if self.agent.is_running:
            yield from self.request("resume")
        self.drained = False

    def stop_agent(self, cause: str) -> Script:
        """Let the agent write a checkpoint and end; kill it after its grace period, or at a second request to stop."""
        if self.agent.is_running:
            self.enter(State.DRAINING)
            grace_s = self.config.agent.stop_grace_s
            self.journal.event(LauncherEvent.AGENT_ASKED_TO_STOP, cause, grace_s=grace_s)
            yield from self.agent.stop(lambda: self.now_s, self.effects.stop.cut_short)

    # All

    def kill_all(self) -> None:
        """Kill all programs, and record nothing."""
        self.agent.kill()
        self.simulator.kill()
        self.further.kill_all()

    def back_off(self, program: SupervisedProcess) -> Script:
        """Wait until a program is due again."""
        while self.now_s < program.due_s:
            self.enter(State.BACKOFF)
            yield
