"""Findings weighed against what happened before: budgets are counted here, and each finding gets its decision."""

from __future__ import annotations

from collections.abc import Callable

from launcher.act.journal import Journal
from launcher.act.ladder_state import LadderState
from launcher.act.managed_processes import ManagedProcesses
from launcher.config import LauncherConfig
from launcher.decide import policy
from launcher.decide.decisions import Decision, Nothing
from launcher.decide.detectors.causes import Cause, Finding
from launcher.decide.restarts import failures_in_a_row
from launcher.observe.observation import Observation


class Judge:
    """Decides, and remembers how often what failed."""

    def __init__(
        self,
        config: LauncherConfig,
        processes: ManagedProcesses,
        ladder: LadderState,
        journal: Journal,
        draw: Callable[[], float],
    ) -> None:
        self.ever_healthy = False
        self._config, self._processes, self._ladder, self._journal, self._draw = (
            config,
            processes,
            ladder,
            journal,
            draw,
        )

    def decide(self, finding: Finding, seen: Observation) -> Decision:
        """Return what to do about a finding; each call about something that failed counts as one failure."""
        if finding.cause in policy.SHORT and not self._ladder.settled(self._processes.now_s):
            return Nothing()
        failures = 0
        if finding.cause in policy.SIMULATOR_FAILED:
            failures = self._simulator_failed_again()
        elif finding.cause in policy.AGENT_FAILED:
            failures = self._agent_failed_again()
        elif finding.cause is Cause.LEAK:
            failures = self._leaked_again(finding.owner)
        ground = self._ladder.ground(seen)
        return policy.decide(finding, failures, self.ever_healthy, ground, self._config, self._draw())

    def restarts_for_leak(self, program: str) -> None:
        """Take note that a program is started again because it leaks."""
        self._journal.state.leak_restarts[program] = self._leaked_again(program)

    def _leaked_again(self, program: str) -> int:
        """Return the restarts for leaks in a row, were it started again now; the same at every look until it is."""
        age_s = self._processes.simulator_age_s if program == "simulator" else self._processes.agent_age_s
        before = self._journal.state.leak_restarts.get(program, 0)
        return failures_in_a_row(before, age_s, self._config.memory.leak_restarts)

    def _simulator_failed_again(self) -> int:
        state, limits = self._journal.state, self._config.simulator.restarts
        state.simulator_failures = failures_in_a_row(state.simulator_failures, self._processes.simulator_age_s, limits)
        return state.simulator_failures

    def _agent_failed_again(self) -> int:
        state, limits = self._journal.state, self._config.agent.restarts
        state.agent_failures = failures_in_a_row(state.agent_failures, self._processes.agent_age_s, limits)
        return state.agent_failures
