"""A run: its state and journal, and its programs, each started, asked and stopped by a script that waits by yielding.

Owns which ends were asked for, and the order in which things happen to a program: what is recorded comes before what is
done, so that a launcher that is killed in between is followed by one that knows the intention. Decides nothing: why
something is restarted, and whether, comes from above.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from carla_launcher.act.effects import Effects, State
from carla_launcher.act.further_simulators import FurtherSimulators
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import ProcessState
from carla_launcher.act.program import Script, SupervisedProcess
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.ladder import overrides
from carla_launcher.observe.observation import Ended
from carla_run.events import LauncherEvent
from carla_run.requests import Answer

WAITING_S = 10.0
"""Between two lines that say what is waited for."""


class SimulatorFailedError(Exception):
    """A simulator that was started didn't get as far as answering and ticking."""

    def __init__(self, cause: str, ended: Ended | None, last_words: str) -> None:
        super().__init__(cause)
        self.cause, self.ended, self.last_words = cause, ended, last_words


class Run:
    """One run.

    Attributes:
        stands: where it stands.
        drained: the agent waits for ``resume``.
        warm: the agent's rehearsal is over.
    """

    def __init__(self, spec: RunSpec, config: LauncherConfig, effects: Effects, journal: Journal) -> None:
        self.stands = State.INIT
        self.drained = self.warm = False
        self.spec, self.config, self.effects, self.journal = spec, config, effects, journal
        self.say = effects.say
        before, runtime = journal.state, effects.runtime
        self.simulator = SupervisedProcess(
            runtime, Role.SIMULATOR, config.simulator, failures=before.simulator_failures
        )
        self.agent = SupervisedProcess(runtime, Role.AGENT, config.agent, failures=before.agent_failures)
        self.further = FurtherSimulators(spec.simulator, config, effects, journal)

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
        """Return whether it answers requests: it lives, and its rehearsal is over."""
        return self.agent.lives and self.warm

    @property
    def simulator_is_dead(self) -> bool:
        """Return whether a simulator is to be started here."""
        return self.spec.simulator.ours and not self.simulator.lives

    def program(self, name: str) -> SupervisedProcess:
        """Return simulator or agent by its name."""
        return self.simulator if name == Role.SIMULATOR.value else self.agent

    def enter(self, state: State) -> None:
        """Say where the run stands, and in which processes (a container's is known only after its start); write it."""
        if state is self.stands:
            return
        self.stands = state
        self.journal.change(state=state.value)
        for program in (self.simulator, self.agent):
            shown: ProcessState | None = getattr(self.journal.state, program.name)
            if shown is not None and program.child is not None:
                self.journal.change(**{program.name: replace(shown, pid=program.child.pid or shown.pid)})
        self.journal.save()  # nothing else may happen to it for hours

    def adopt(self) -> None:
        """Take over what a launcher that is gone left running; a simulator of another quality is of no use."""
        before = self.journal.state.simulator
        adopted = (LauncherEvent.SIMULATOR_ADOPTED, LauncherEvent.AGENT_ADOPTED)
        for program, event in zip((self.simulator, self.agent), adopted, strict=True):
            child = program.child = self.effects.runtime.left(program.role)
            if child is not None:
                self._record(program)
                self.journal.event(event, "left by an earlier launcher", pid=child.pid)
                self.say(f"goes on with the {program.name} that an earlier launcher left, process {child.pid}")
        if self.simulator.child is not None and before is not None and before.quality != self.quality:
            self.lose_simulator()
        if self.agent.child is not None:
            self.agent.healthy_s = self.now_s

    def count_restart(self, program: SupervisedProcess) -> None:
        """Count a restart of simulator or agent."""
        key = f"{program.name}_restarts"
        self.journal.change(**{key: getattr(self.journal.state, key) + 1})

    def count_failure(self, program: SupervisedProcess) -> int:
        """Count a failure of simulator or agent, and return how many there were in a row."""
        failures = program.count_failure(self.now_s)
        self.journal.change(**{f"{program.name}_failures": failures})
        return failures

    def _record(self, program: SupervisedProcess) -> None:
        """Say what a program is; without a child, that one is about to be started."""
        quality, child = self.quality if program is self.simulator else None, program.child
        shown = ProcessState(quality=quality) if child is None else ProcessState(child.pid, str(child.log), quality)
        self.journal.change(**{program.name: shown})

    # The simulator

    def bring_simulator(self, delay_s: float = 0.0) -> Script:
        """Start it, unless it runs already, and return when it answers and ticks.

        Raises:
            SimulatorFailedError: it ended, or isn't ready in time; :meth:`lose_simulator` ends what is left of it.
        """
        yield from self.pause(delay_s)
        if self.spec.on_cluster:  # each of its nodes has one
            self.simulator.healthy_s = self.now_s
            return
        self.enter(State.STARTING_SIMULATOR)
        started_s = said_s = self.now_s
        if self.spec.simulator.ours and self.simulator.child is None:
            self._start_simulator()
        key, limit_s = self.spec.simulator.start_limit(self.config.simulator)
        while True:
            if (ended := self.simulator.ended) is not None:
                raise self._failed(f"the simulator ended during its start ({ended})", ended)
            health = self.effects.check(self.agent.child is not None and not self.drained)
            if health.ok:
                break
            waited_s = self.now_s - started_s
            if waited_s >= limit_s:
                after = f"{waited_s:.0f} s ({key} is {limit_s:g})"
                raise self._failed(
                    f"the simulator at {self.spec.address} isn't ready after {after}: {health.problem}", None
                )
            if self.now_s - said_s >= WAITING_S:
                said_s = self.now_s
                waited = f"{waited_s:.0f} of {limit_s:g} s"
                self.say(f"waits for the simulator at {self.spec.address} ({waited}): {health.problem}")
            yield
        self.simulator.healthy_s = self.now_s
        took_s = round(self.now_s - started_s, 2)
        self.journal.event(LauncherEvent.SIMULATOR_HEALTHY, took_s=took_s, version=health.version, frame=health.frame)
        self.say(f"simulator {health.version} answers and ticks after {took_s:.1f} s")

    def _start_simulator(self) -> None:
        self._record(self.simulator)
        self.journal.event(LauncherEvent.SIMULATOR_STARTS, port=self.spec.address.port, quality=self.quality)
        try:
            child = self.simulator.start(self.now_s, self.quality)
        except StartError as error:
            raise SimulatorFailedError(str(error), Ended(65), "") from error
        self._record(self.simulator)
        self.journal.event(LauncherEvent.SIMULATOR_STARTED, pid=child.pid, log=str(child.log))
        self.say(f"simulator starts at {self.spec.address}, process {child.pid or 'to come'}, log {child.log}")

    def _failed(self, cause: str, ended: Ended | None) -> SimulatorFailedError:
        return SimulatorFailedError(cause, ended, self.simulator.last_output().rstrip("."))

    def lose_simulator(self) -> None:
        """Forget a simulator that failed; what still runs of it is killed."""
        if self.simulator.child is not None and self.simulator.lives:
            self.effects.observer.expect_end(self.simulator.child)
            self.journal.event(LauncherEvent.SIMULATOR_KILLED, "it is of no use")
        self.simulator.forget()

    def stop_simulator(self) -> Script:
        """End it, with its grace; a second request to stop cuts that short."""
        if self.simulator.lives:
            self.enter(State.STOPPING_SIMULATOR)
            yield from self._end(self.simulator, LauncherEvent.SIMULATOR_KILLED, LauncherEvent.SIMULATOR_STOPPED)
            self.simulator.forget()

    # The agent

    def start_agent(self, resume: bool) -> None:
        """Lay the present rung's values and start it.

        Raises:
            StartError: it can't be started.
        """
        self.enter(State.WARMING)
        self.lay()
        self.journal.change(agent=ProcessState())
        values = overrides(self.journal.state.taken)
        self.journal.event(LauncherEvent.AGENT_STARTS, resume=resume, overrides=values)
        child = self.agent.start(self.now_s, resume=resume)
        self._record(self.agent)
        self.agent.healthy_s, self.drained, self.warm = self.now_s, False, False
        self.journal.event(LauncherEvent.AGENT_STARTED, pid=child.pid, log=str(child.log))
        self.say(f"agent starts, process {child.pid or 'to come'}, log {child.log}")

    def lay(self) -> None:
        """Write the present rung's values for the agent's next start.

        Raises:
            StartError: the disk refuses them; the agent would start on another rung.
        """
        try:
            self.effects.requests.write_overrides(overrides(self.journal.state.taken))
        except OSError as error:
            self.journal.event(LauncherEvent.OVERRIDES_FAILED, str(error))
            raise StartError(
                f"The values for the agent can't be written ({error.strerror}): free some disk."
            ) from error

    def ask(self, kind: str, values: Mapping[str, Any] | None = None) -> Generator[None, None, Answer | None]:
        """Ask the agent and return its answer; None if it ended or said nothing in time."""
        requests = self.effects.requests
        try:
            number = requests.send(kind, values)
        except OSError as error:
            self.journal.event(LauncherEvent.REQUEST_FAILED, str(error), kind=kind)
            return None
        self.journal.event(LauncherEvent.REQUEST, kind=kind, id=number, values=dict(values or {}))
        deadline_s = self.now_s + self.config.agent.answer_limit_s
        while self.agent.lives and self.now_s < deadline_s:
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
        """Have the agent write a checkpoint and give the simulator back; it waits then for ``resume``."""
        self.enter(State.DRAINING)
        self.journal.event(LauncherEvent.DRAINING, cause)
        answer = yield from self.ask("drain")
        self.drained = answer is not None and answer.ok

    def resume(self) -> Script:
        """Have a drained agent drive again."""
        if self.agent.lives:
            yield from self.ask("resume")
        self.drained = False

    def stop_agent(self, cause: str) -> Script:
        """Have it write a checkpoint and end; after its grace, or at a second request to stop, it is killed."""
        if self.agent.lives:
            self.enter(State.DRAINING)
            grace_s = self.config.agent.stop_grace_s
            self.journal.event(LauncherEvent.AGENT_ASKED_TO_STOP, cause, grace_s=grace_s)
            yield from self._end(self.agent, LauncherEvent.AGENT_KILLED, LauncherEvent.AGENT_STOPPED)

    def kill_agent(self, cause: str) -> None:
        """End it at once."""
        if self.agent.child is not None and self.agent.lives:
            self.effects.observer.expect_end(self.agent.child)
            self.journal.event(LauncherEvent.AGENT_KILLED, cause)
            self.agent.kill()

    # All

    def kill_all(self) -> None:
        """End all at once, without a word."""
        self.agent.kill()
        self.simulator.kill()
        self.further.kill_all()

    def cut_short(self) -> bool:
        """Return whether a second request to stop ends every grace."""
        return self.effects.stop.count > 1

    def _end(self, program: SupervisedProcess, killed: LauncherEvent, stopped: LauncherEvent) -> Script:
        assert program.child is not None
        self.effects.observer.expect_end(program.child)
        self.journal.save()

        def about_to_kill(cause: str) -> None:
            self.journal.event(killed, cause)
            self.say(f"the {program.name} is killed: {cause}")

        yield from program.stop(lambda: self.now_s, self.cut_short, about_to_kill)
        self.journal.event(stopped, exit_code=program.ended.code if program.ended else None)

    def pause(self, delay_s: float) -> Script:
        """Wait, in back-off."""
        if delay_s <= 0:
            return
        self.enter(State.BACKOFF)
        until_s = self.now_s + delay_s
        while self.now_s < until_s:
            yield
