"""Findings weighed against what happened before: failures are counted here, and ``policy`` decides by the counts."""

from __future__ import annotations

from collections.abc import Callable

from carla_launcher.act.ladder_state import LadderState
from carla_launcher.act.managed_processes import ManagedProcesses
from carla_launcher.act.run_state import RunState
from carla_launcher.act.runtime import Role
from carla_launcher.config import LauncherConfig
from carla_launcher.decide import policy
from carla_launcher.decide.decisions import Decision, Nothing
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.observation import Observation


class RestartBudgets:
    """Decides with a count of what failed."""

    def __init__(
        self,
        config: LauncherConfig,
        processes: ManagedProcesses,
        ladder: LadderState,
        run_state: RunState,
        draw: Callable[[], float],
    ) -> None:
        self.ever_healthy = False
        self._config, self._processes, self._ladder = config, processes, ladder
        self._run_state, self._draw = run_state, draw

    def decide(self, finding: Finding, seen: Observation) -> Decision:
        """Return what to do about a finding; each call about something that failed counts as one failure."""
        if finding.cause in policy.SHORT and not self._ladder.settled(self._processes.now_s):
            return Nothing()
        run_state, failures = self._run_state, 0
        if finding.cause in policy.SIMULATOR_FAILED:
            age_s = self._processes.simulator_age_s
            failures = run_state.count_failure(Role.SIMULATOR, age_s, self._config.simulator.restarts)
        elif finding.cause in policy.AGENT_FAILED:
            age_s = self._processes.agent_age_s
            failures = run_state.count_failure(Role.AGENT, age_s, self._config.agent.restarts)
        elif finding.cause is Cause.LEAK:
            limits = self._config.memory.leak_restarts
            failures = run_state.leak_restarts(finding.owner, self._age_s(finding.owner), limits)
        ground = self._ladder.ground(seen)
        return policy.decide(finding, failures, self.ever_healthy, ground, self._config, self._draw())

    def restarts_for_leak(self, program: str) -> None:
        """Take note that a program is started again because it leaks."""
        self._run_state.count_leak_restart(program, self._age_s(program), self._config.memory.leak_restarts)

    def _age_s(self, program: str) -> float:
        return self._processes.simulator_age_s if program == "simulator" else self._processes.agent_age_s
