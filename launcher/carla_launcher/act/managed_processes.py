"""The two programs of a run: started, asked, stopped and started again, each as a script that waits by yielding.

Owns both children, which ends were asked for, and the order in which things happen to them: what is recorded comes
before what is done, so that a launcher that is killed in between is followed by one that knows the intention. Decides
nothing: why something is restarted, and whether, comes from above.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from carla_launcher.act.effects import Effects, State
from carla_launcher.act.further_simulators import FurtherSimulators
from carla_launcher.act.journal import Journal
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.run_state import RunState
from carla_launcher.act.runtime import Child, Role, Start, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.ladder import overrides
from carla_launcher.observe.observation import Ended
from carla_run.events import LauncherEvent
from carla_run.readers import last_lines
from carla_run.requests import Answer

Script = Generator[None, None, None]
WAITING_S = 10.0
"""Between two lines that say what is waited for."""
ADOPTED = {Role.SIMULATOR: LauncherEvent.SIMULATOR_ADOPTED, Role.AGENT: LauncherEvent.AGENT_ADOPTED}
KILLED = {Role.SIMULATOR: LauncherEvent.SIMULATOR_KILLED, Role.AGENT: LauncherEvent.AGENT_KILLED}
STOPPED = {Role.SIMULATOR: LauncherEvent.SIMULATOR_STOPPED, Role.AGENT: LauncherEvent.AGENT_STOPPED}


class SimulatorFailedError(Exception):
    """A simulator that was started didn't get as far as answering and ticking."""

    def __init__(self, cause: str, ended: Ended | None, last_words: str) -> None:
        super().__init__(cause)
        self.cause, self.ended, self.last_words = cause, ended, last_words


class ManagedProcesses:
    """Simulator and agent of one run."""

    def __init__(
        self, spec: RunSpec, config: LauncherConfig, effects: Effects, journal: Journal, run_state: RunState
    ) -> None:
        self.state = State.INIT
        self.simulator: Child | None = None
        self.agent: Child | None = None
        self.simulator_healthy_s: float | None = None
        self.agent_started_s: float | None = None
        self.drained = False
        self.warm = False
        self._spec, self._config, self._effects = spec, config, effects
        self._journal, self._run_state = journal, run_state
        self.further = FurtherSimulators(
            effects.further, config, effects.runtime, journal, run_state, effects.draw, effects.say
        )

    @property
    def now_s(self) -> float:
        """Return the clock's time."""
        return self._effects.clock.monotonic()

    @property
    def quality(self) -> str | None:
        """Return the simulator's quality on the present rung."""
        state = self._run_state.now
        return next((taken.quality for taken in reversed(state.taken) if taken.quality), state.quality)

    @property
    def simulator_age_s(self) -> float:
        """Return for how long it has been healthy."""
        return 0.0 if self.simulator_healthy_s is None else self.now_s - self.simulator_healthy_s

    @property
    def agent_age_s(self) -> float:
        """Return how long ago it was started."""
        return 0.0 if self.agent_started_s is None else self.now_s - self.agent_started_s

    @property
    def agent_lives(self) -> bool:
        """Return whether the agent was started and hasn't ended."""
        return self.agent is not None and self.agent.poll() is None

    @property
    def agent_listens(self) -> bool:
        """Return whether it answers requests: it lives, and its rehearsal is over."""
        return self.agent_lives and self.warm

    def enter(self, state: State) -> None:
        """Say where the run stands, and in which processes (a container's is known only after its start)."""
        if state is self.state:
            return
        self.state = state
        self._run_state.enter(state, self.simulator, self.agent)

    def adopt(self) -> None:
        """Take over what a launcher that is gone left running; a simulator of another quality is of no use."""
        before = self._run_state.now.simulator
        for role in Role:
            child = self._effects.runtime.left(role)
            if child is not None:
                self._set(role, child)
                self._journal.event(ADOPTED[role], "left by an earlier launcher", pid=child.pid)
                self._effects.say(f"goes on with the {role.value} that an earlier launcher left, process {child.pid}")
        if self.simulator is not None and before is not None and before.quality != self.quality:
            self.lose_simulator()
        if self.agent is not None:
            self.agent_started_s = self.now_s

    # The simulator

    def bring_simulator(self, delay_s: float = 0.0) -> Script:
        """Start it, unless it runs already, and return when it answers and ticks.

        Raises:
            SimulatorFailedError: it ended, or isn't ready in time; :meth:`lose_simulator` ends what is left of it.
        """
        yield from self.pause(delay_s)
        if self._spec.on_cluster:  # each of its nodes has one
            self.simulator_healthy_s = self.now_s
            return
        self.enter(State.STARTING_SIMULATOR)
        started_s = said_s = self.now_s
        if self._spec.simulator_ours and self.simulator is None:
            self._start_simulator()
        key, limit_s = self._config.simulator.ready_within(self._spec.simulator_ours, lite=self.quality is None)
        while True:
            ended = None if self.simulator is None else self.simulator.poll()
            if ended is not None:
                raise self._failed(f"the simulator ended during its start ({ended})", ended)
            health = self._effects.check(self.agent is not None and not self.drained)
            if health.ok:
                break
            if self.now_s - started_s >= limit_s:
                after = f"{self.now_s - started_s:.0f} s ({key} is {limit_s:g})"
                raise self._failed(
                    f"the simulator at {self._spec.address} isn't ready after {after}: {health.problem}", None
                )
            if self.now_s - said_s >= WAITING_S:
                said_s = self.now_s
                waited = f"{self.now_s - started_s:.0f} of {limit_s:g} s"
                self._effects.say(f"waits for the simulator at {self._spec.address} ({waited}): {health.problem}")
            yield
        self.simulator_healthy_s = self.now_s
        took_s = round(self.now_s - started_s, 2)
        self._journal.event(LauncherEvent.SIMULATOR_HEALTHY, took_s=took_s, version=health.version, frame=health.frame)
        self._effects.say(f"simulator {health.version} answers and ticks after {took_s:.1f} s")

    def _start_simulator(self) -> None:
        self._run_state.program(Role.SIMULATOR, None, self.quality)
        self._journal.event(LauncherEvent.SIMULATOR_STARTS, port=self._spec.address.port, quality=self.quality)
        try:
            child = self._effects.runtime.start(Start(Role.SIMULATOR, quality=self.quality))
        except StartError as error:
            raise SimulatorFailedError(str(error), Ended(65), "") from error
        self._set(Role.SIMULATOR, child)
        self._journal.event(LauncherEvent.SIMULATOR_STARTED, pid=child.pid, log=str(child.log))
        self._effects.say(
            f"simulator starts at {self._spec.address}, process {child.pid or 'to come'}, log {child.log}"
        )

    def _failed(self, cause: str, ended: Ended | None) -> SimulatorFailedError:
        words = "" if self.simulator is None else last_lines(self.simulator.log).rstrip(".")
        return SimulatorFailedError(cause, ended, words)

    def lose_simulator(self) -> None:
        """Forget a simulator that failed; what still runs of it is killed."""
        if self.simulator is not None and self.simulator.poll() is None:
            self._effects.observer.expect_end(self.simulator)
            self._journal.event(LauncherEvent.SIMULATOR_KILLED, "it is of no use")
            self.simulator.kill()
        self.simulator, self.simulator_healthy_s = None, None

    def stop_simulator(self) -> Script:
        """End it, with its grace; a second request to stop cuts that short."""
        if self.simulator is None or self.simulator.poll() is not None:
            return
        self.enter(State.STOPPING_SIMULATOR)
        yield from self._end(Role.SIMULATOR, self._config.simulator.stop_grace_s)
        self.simulator, self.simulator_healthy_s = None, None

    # The agent

    def start_agent(self, resume: bool) -> None:
        """Lay the present rung's values and start it.

        Raises:
            StartError: it can't be started.
        """
        self.enter(State.WARMING)
        self.lay()
        self._run_state.program(Role.AGENT, None)
        self._journal.event(LauncherEvent.AGENT_STARTS, resume=resume, overrides=overrides(self._run_state.now.taken))
        child = self._effects.runtime.start(Start(Role.AGENT, resume=resume))
        self._set(Role.AGENT, child)
        self.agent_started_s, self.drained, self.warm = self.now_s, False, False
        self._journal.event(LauncherEvent.AGENT_STARTED, pid=child.pid, log=str(child.log))
        self._effects.say(f"agent starts, process {child.pid or 'to come'}, log {child.log}")

    def lay(self) -> None:
        """Write the present rung's values for the agent's next start.

        Raises:
            StartError: the disk refuses them; the agent would start on another rung.
        """
        try:
            self._effects.requests.write_overrides(overrides(self._run_state.now.taken))
        except OSError as error:
            self._journal.event(LauncherEvent.OVERRIDES_FAILED, str(error))
            raise StartError(
                f"The values for the agent can't be written ({error.strerror}): free some disk."
            ) from error

    def ask(self, kind: str, values: Mapping[str, Any] | None = None) -> Generator[None, None, Answer | None]:
        """Ask the agent and return its answer; None if it ended or said nothing in time."""
        try:
            number = self._effects.requests.send(kind, values)
        except OSError as error:
            self._journal.event(LauncherEvent.REQUEST_FAILED, str(error), kind=kind)
            return None
        self._journal.event(LauncherEvent.REQUEST, kind=kind, id=number, values=dict(values or {}))
        deadline_s = self.now_s + self._config.agent.answer_limit_s
        while self.agent_lives and self.now_s < deadline_s:
            answer = self._effects.requests.answer(number)
            if answer is not None:
                self._journal.event(LauncherEvent.REQUEST_ANSWERED, answer.sentence, kind=kind, id=number, ok=answer.ok)
                return answer
            yield
        answer = self._effects.requests.answer(number)
        self._journal.event(
            LauncherEvent.REQUEST_ANSWERED if answer else LauncherEvent.REQUEST_UNANSWERED, kind=kind, id=number
        )
        return answer

    def drain(self, cause: str) -> Script:
        """Have the agent write a checkpoint and give the simulator back; it waits then for ``resume``."""
        self.enter(State.DRAINING)
        self._journal.event(LauncherEvent.DRAINING, cause)
        answer = yield from self.ask("drain")
        self.drained = answer is not None and answer.ok

    def resume(self) -> Script:
        """Have a drained agent drive again."""
        if self.agent_lives:
            yield from self.ask("resume")
        self.drained = False

    def stop_agent(self, cause: str) -> Script:
        """Have it write a checkpoint and end; after its grace, or at a second request to stop, it is killed."""
        if not self.agent_lives:
            return
        self.enter(State.DRAINING)
        grace_s = self._config.agent.stop_grace_s
        self._journal.event(LauncherEvent.AGENT_ASKED_TO_STOP, cause, grace_s=grace_s)
        yield from self._end(Role.AGENT, grace_s)

    def kill_agent(self, cause: str) -> None:
        """End it at once."""
        if self.agent is not None and self.agent_lives:
            self._effects.observer.expect_end(self.agent)
            self._journal.event(LauncherEvent.AGENT_KILLED, cause)
            self.agent.kill()

    # Both

    def kill_all(self) -> None:
        """End all at once, without a word."""
        for child in (self.agent, self.simulator):
            if child is not None and child.poll() is None:
                child.kill()
        self.further.kill_all()

    def _end(self, role: Role, grace_s: float) -> Script:
        child = self.agent if role is Role.AGENT else self.simulator
        assert child is not None
        self._effects.observer.expect_end(child)
        self._journal.save()
        asked_s = self.now_s
        child.terminate()
        while (ended := child.poll()) is None:
            twice = self._effects.stop.count > 1
            if twice or self.now_s - asked_s >= grace_s:
                cause = "a second request" if twice else "its grace is over"
                self._journal.event(KILLED[role], cause)
                self._effects.say(f"the {role.value} is killed: {cause}")
                child.kill()
                continue
            yield
        self._journal.event(STOPPED[role], exit_code=ended.code)

    def pause(self, delay_s: float) -> Script:
        """Wait, in back-off."""
        if delay_s <= 0:
            return
        self.enter(State.BACKOFF)
        until_s = self.now_s + delay_s
        while self.now_s < until_s:
            yield

    def _set(self, role: Role, child: Child) -> None:
        if role is Role.SIMULATOR:
            self.simulator = child
            self._run_state.program(role, child, self.quality)
        else:
            self.agent = child
            self._run_state.program(role, child)
