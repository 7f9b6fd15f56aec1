"""Everything that is seen, put together: one look, one observation.

Owns the order of looking, and which ends the launcher itself asked for. Decides nothing; how memory is read and how a
simulator is asked is injected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from contract.paths import RunPaths
from launcher.act.runtime import Child
from launcher.config import WatchLimits
from launcher.memory.pools import Reading
from launcher.watching.health import Address
from launcher.watching.heartbeat import AgentFiles
from launcher.watching.observation import AgentSeen, Ended, Observation
from launcher.watching.simulator import Questions, SimulatorEye

ReadMemory = Callable[[frozenset[int], frozenset[int]], Reading]
"""From the process ids of simulator and agent to all pools; never raises."""


class Watch:
    """Looks at one run. Create it before anything is started: what logs and files hold by then is the past.

    Args:
        run: whose files the agent writes.
        address: of the simulator.
        limits: how often is asked.
        read_memory: reads all pools.
        ask: asks the simulator; one question a look at most.
        external: somebody else runs the simulator.
        simulator_log: where a simulator's lines will appear; None if that is nowhere.
    """

    def __init__(
        self,
        run: RunPaths,
        address: Address,
        limits: WatchLimits,
        read_memory: ReadMemory,
        ask: Questions,
        external: bool = False,
        simulator_log: Path | None = None,
    ) -> None:
        self._limits, self._read_memory = limits, read_memory
        self._simulator = SimulatorEye(address, limits, ask, external, simulator_log)
        self._files = AgentFiles(run)
        self._agent: Child | None = None
        self._asked_to_end: list[Child] = []
        self._looked_s: float | None = None

    def expect_end(self, child: Child) -> None:
        """Say that the launcher asks this program to end, before it does: however it ends, that was planned."""
        self._asked_to_end.append(child)

    def look(self, now_s: float, simulator: Child | None, agent: Child | None) -> Observation:
        """Return what is seen now; None stands for a program that wasn't started, or was put away."""
        if self._looked_s is not None and now_s - self._looked_s > self._limits.gap_s:
            self._files.restart_age(now_s)
        self._looked_s = now_s
        agent_seen = self._look_at_agent(now_s, agent)
        seen = self._simulator.look(now_s, simulator, in_use=agent_seen.running)
        pids = (frozenset() if child is None else child.pids() for child in (simulator, agent))
        return Observation(
            time_s=now_s,
            memory=self._read_memory(*pids),
            simulator=replace(seen, ended=self._with_intent(seen.ended, simulator)),
            agent=agent_seen,
        )

    def close(self) -> None:
        """Let go of connection and files."""
        self._simulator.close()
        self._files.close()

    def _look_at_agent(self, now_s: float, agent: Child | None) -> AgentSeen:
        if agent is not self._agent:
            self._agent = agent
            self._files.begin()
        # The end first, the files after it: then they hold the last words.
        ended = None if agent is None else agent.poll()
        pulse = self._files.look(now_s)
        return AgentSeen(
            running=agent is not None and ended is None,
            ended=self._with_intent(ended, agent),
            beat=pulse.beat if agent is not None else None,
            beat_age_s=pulse.age_s if agent is not None else 0.0,
            events=pulse.events,
            pid=0 if agent is None else agent.pid,
        )

    def _with_intent(self, ended: Ended | None, child: Child | None) -> Ended | None:
        if ended is None:
            return None
        return replace(ended, planned=any(child is each for each in self._asked_to_end))
