"""The state machine of one run: simulator up and healthy, agent beside it, both down again in the right order.

Owns the states and the order of things. Everything it touches is injected (runtime, health check, clock, journal,
requests to stop), what follows from an end is ``policy``'s, so the same code runs hours of simulated time in tests.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from launcher import policy
from launcher.config import LauncherConfig
from launcher.exits import Ending, Exit, exit_in_words
from launcher.journal import Journal, ProcessState
from launcher.policy import Failure, Restart
from launcher.run_directory import last_lines
from launcher.runtimes.job import Child, Job, Runtime
from launcher.watching.health import Address, Health

LOG_LINES_SHOWN = 12


class State(Enum):
    """Where the run stands. BACKOFF waits before a restart, DRAINING for the agent's checkpoint and exit."""

    INIT = "init"
    STARTING_SIMULATOR = "starting_simulator"
    RUNNING = "running"
    BACKOFF = "backoff"
    DRAINING = "draining"
    STOPPING_SIMULATOR = "stopping_simulator"
    STOPPED = "stopped"


class Clock(Protocol):
    """Time that a suspended machine doesn't count (CLOCK_MONOTONIC); a simulated one in tests."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""


class Requests(Protocol):
    """Who wants the run to end."""

    count: int
    cause: str


@dataclass(frozen=True)
class Plan:
    """What to run. ``simulator`` is None if somebody else runs it at ``address``."""

    address: Address
    simulator: Job | None
    agent: Job


@dataclass(frozen=True)
class Edges:
    """What the supervisor touches. ``check(address, in_use)`` asks for health, ``draw`` gives numbers in [-1, 1]."""

    runtime: Runtime
    check: Callable[[Address, bool], Health]
    clock: Clock
    draw: Callable[[], float]
    requests: Requests
    say: Callable[[str], None]


class Supervisor:
    """Runs one plan to its end."""

    def __init__(self, plan: Plan, config: LauncherConfig, edges: Edges, journal: Journal) -> None:
        self.state = State.INIT
        self.ending: Ending | None = None
        self._plan, self._config, self._edges, self._journal = plan, config, edges, journal
        self._simulator: Child | None = None
        self._agent: Child | None = None
        self._deadline_s = 0.0
        self._started_s = 0.0
        self._healthy_since_s: float | None = None
        self._steps = {
            State.INIT: self._start_simulator,
            State.STARTING_SIMULATOR: self._starting,
            State.RUNNING: self._running,
            State.BACKOFF: self._backing_off,
            State.DRAINING: self._draining,
        }

    def run(self) -> Ending:
        """Return how the run ended; nothing that it started is left, also if this raises."""
        try:
            while self.state is not State.STOPPED:
                self.step()
                self._edges.clock.sleep(self._config.poll_s)
        finally:
            for child in (self._agent, self._simulator):
                if child is not None and child.poll() is None:
                    child.kill()
        assert self.ending is not None
        return self.ending

    def step(self) -> None:
        """Look once at everything and act on it; blocks for no longer than a health check or a kill takes."""
        if self.state is State.STOPPING_SIMULATOR:
            return self._stopping()
        code = None if self._agent is None else self._agent.poll()
        if code is not None:
            return self._agent_ended(code)
        if self._edges.requests.count > 0 and self.state is not State.DRAINING:
            return self._drain(Ending(Exit.STOPPED, f"stopped on request ({self._edges.requests.cause})"))
        return self._steps[self.state]()

    # The simulator

    def _start_simulator(self) -> None:
        job, limits = self._plan.simulator, self._config.simulator
        self._started_s = self._now_s
        self._healthy_since_s = None
        limit_s = limits.running_limit_s if job is None else limits.start_limit_s
        self._enter(State.STARTING_SIMULATOR, limit_s)
        if job is None:
            self._say(f"using the simulator at {self._plan.address}")
            return
        self._simulator = self._edges.runtime.start(job)
        self._journal.state.simulator = _shown(self._simulator, job)
        self._journal.event("simulator_started", pid=self._simulator.pid, port=self._plan.address.port)
        self._say(f"simulator starts at {self._plan.address}, process {self._simulator.pid}, log {job.log}")

    def _starting(self) -> None:
        code = None if self._simulator is None else self._simulator.poll()
        if code is not None:
            return self._simulator_failed(f"ended during its start ({exit_in_words(code)})", code)
        health = self._edges.check(self._plan.address, self._agent is not None)
        if health.ok:
            return self._simulator_healthy(health)
        if self._now_s >= self._deadline_s:
            after_s = self._now_s - self._started_s
            cause = f"at {self._plan.address} isn't ready after {after_s:.0f} s: {health.problem}"
            return self._simulator_failed(cause, None)
        return None

    def _simulator_healthy(self, health: Health) -> None:
        self._healthy_since_s = self._now_s
        took_s = round(self._now_s - self._started_s, 2)
        self._enter(State.RUNNING)
        self._journal.event("simulator_healthy", took_s=took_s, version=health.version, frame=health.frame)
        self._say(f"simulator {health.version} answers and ticks after {took_s:.1f} s")
        if self._agent is None:
            self._start_agent()

    def _running(self) -> None:
        code = None if self._simulator is None else self._simulator.poll()
        if code is not None:
            self._simulator_failed(f"ended by itself ({exit_in_words(code)})", code)

    def _simulator_failed(self, cause: str, code: int | None) -> None:
        limits, state = self._config.simulator, self._journal.state
        healthy_for_s = 0.0 if self._healthy_since_s is None else self._now_s - self._healthy_since_s
        state.simulator_failures = policy.failures_in_a_row(state.simulator_failures, healthy_for_s, limits)
        log = None if self._plan.simulator is None else self._plan.simulator.log
        failure = Failure(
            cause=cause,
            exit_code=code,
            in_a_row=state.simulator_failures,
            ever_healthy=self._agent is not None,
            last_words="" if log is None else last_lines(log).rstrip("."),
        )
        decision = policy.after_simulator_failure(failure, limits, self._edges.draw())
        if self._simulator is not None and code is None:
            self._simulator.kill()
        self._simulator = None
        numbers = {"exit_code": code, "in_a_row": failure.in_a_row, "healthy_for_s": round(healthy_for_s, 2)}
        self._journal.event("simulator_failed", cause, **numbers)
        if isinstance(decision, Restart):
            return self._back_off(decision, cause)
        if log is not None and code not in policy.SIMULATOR_REFUSALS:
            self._say(f"the end of {log}:\n{last_lines(log, LOG_LINES_SHOWN)}")
        return self._drain(decision)

    def _back_off(self, restart: Restart, cause: str) -> None:
        self._journal.state.simulator_restarts += 1
        self._enter(State.BACKOFF, restart.delay_s)
        self._journal.event("simulator_restart", cause, delay_s=round(restart.delay_s, 2))
        self._say(f"the simulator {cause}: restart in {restart.delay_s:.1f} s, the agent waits for it")

    def _backing_off(self) -> None:
        if self._now_s >= self._deadline_s:
            self._start_simulator()

    # The agent

    def _start_agent(self) -> None:
        job = self._plan.agent
        self._agent = self._edges.runtime.start(job)
        self._journal.state.agent = _shown(self._agent, job)
        self._journal.event("agent_started", pid=self._agent.pid, command=shlex.join(job.command))
        self._say(f"agent starts, process {self._agent.pid}, log {job.log}")

    def _agent_ended(self, code: int) -> None:
        self.ending = policy.after_agent_exit(code, self.ending)
        self._journal.event("agent_ended", self.ending.reason, exit_code=code)
        if code not in policy.AGENT_ENDS and self.ending.code == code:
            self._say(f"the agent crashed ({exit_in_words(code)}); its log is {self._plan.agent.log}")
        self._stop_simulator()

    # The way down

    def _drain(self, ending: Ending) -> None:
        self.ending = ending
        if self._agent is None:
            return self._stop_simulator()
        grace_s = self._config.agent.stop_grace_s
        self._enter(State.DRAINING, grace_s)
        self._journal.event("agent_asked_to_stop", ending.reason, grace_s=grace_s)
        self._say(f"{ending.reason}: the agent writes its checkpoint (up to {grace_s:g} s; Ctrl-C again ends at once)")
        return self._agent.terminate()

    def _draining(self) -> None:
        assert self._agent is not None
        if self._asked_twice or self._now_s >= self._deadline_s:
            cause = "a second request" if self._asked_twice else "its grace is over"
            self._journal.event("agent_killed", cause)
            self._say(f"the agent is killed: {cause}")
            self._agent.kill()

    def _stop_simulator(self) -> None:
        if self._simulator is None:
            return self._stopped()
        self._enter(State.STOPPING_SIMULATOR, self._config.simulator.stop_grace_s)
        self._journal.save()
        return self._simulator.terminate()

    def _stopping(self) -> None:
        assert self._simulator is not None
        if (code := self._simulator.poll()) is not None:
            self._journal.event("simulator_stopped", exit_code=code)
            return self._stopped()
        if self._asked_twice or self._now_s >= self._deadline_s:
            self._journal.event("simulator_killed", "a second request" if self._asked_twice else "its grace is over")
            self._simulator.kill()
        return None

    def _stopped(self) -> None:
        assert self.ending is not None
        self._enter(State.STOPPED)
        self._journal.state.exit_code, self._journal.state.reason = int(self.ending.code), self.ending.reason
        self._journal.event("run_ended", self.ending.reason, exit_code=int(self.ending.code))

    @property
    def _asked_twice(self) -> bool:
        return self._edges.requests.count > 1

    @property
    def _now_s(self) -> float:
        return self._edges.clock.monotonic()

    def _enter(self, state: State, limit_s: float = 0.0) -> None:
        self.state = state
        self._deadline_s = self._now_s + limit_s
        self._journal.state.state = state.value

    def _say(self, sentence: str) -> None:
        self._edges.say(sentence)


def _shown(child: Child, job: Job) -> ProcessState:
    return ProcessState(pid=child.pid, command=shlex.join(job.command), log=str(job.log))
