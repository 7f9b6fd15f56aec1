"""Combines the observations of simulator, agent and memory into one.

Remembers which programs the launcher asked to end. The functions that read memory and query the simulator are injected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from carla_launcher.observe.agent import AgentMonitor
from carla_launcher.observe.observation import AgentSeen, Ended, Observation, Program
from carla_launcher.observe.pools import Reading
from carla_launcher.observe.simulator import SimulatorMonitor
from carla_run.paths import RunPaths

ReadMemory = Callable[[frozenset[int], frozenset[int]], Reading]
"""Takes the process ids of simulator and agent, returns all pools; never raises."""


class SeesAgent(Protocol):
    """Looks at one program in the agent's place after another."""

    def restart_age(self, now_s: float) -> None:
        """Count the age of its last sign of life from now."""

    def look(self, now_s: float, program: Program | None) -> AgentSeen:
        """Return what it is now."""

    def close(self) -> None:
        """Let go of its files."""


class RunObserver:
    """Observes one run. Create it before any program starts, since it ignores what logs and files already contain.

    Args:
        run: the run's files.
        simulator: looks at the simulator.
        read_memory: reads all pools.
        gap_s: after a longer gap between two looks (suspend) the heartbeat's age restarts.
        agent: looks at what runs in the agent's place; None for the agent.
    """

    def __init__(
        self,
        run: RunPaths,
        simulator: SimulatorMonitor,
        read_memory: ReadMemory,
        gap_s: float,
        agent: SeesAgent | None = None,
    ) -> None:
        self._read_memory, self._gap_s = read_memory, gap_s
        self._simulator = simulator
        self._agent: SeesAgent = agent or AgentMonitor(run)
        self._asked_to_end: list[Program] = []
        self._looked_s: float | None = None

    def expect_end(self, program: Program) -> None:
        """Note that the launcher is about to end this program, so that its end counts as planned."""
        self._asked_to_end.append(program)

    def look(
        self, now_s: float, simulator: Program | None, agent: Program | None, further: frozenset[int] = frozenset()
    ) -> Observation:
        """Return the observation; None stands for a program that isn't running.

        ``further`` are processes of other simulators, whose memory counts as the simulator's.
        """
        if self._looked_s is not None and now_s - self._looked_s > self._gap_s:
            self._agent.restart_age(now_s)
        self._looked_s = now_s
        agent_seen = self._agent.look(now_s, agent)
        seen = self._simulator.look(now_s, simulator, in_use=agent_seen.running)
        ours, agents = (frozenset() if program is None else program.pids() for program in (simulator, agent))
        self._asked_to_end = [each for each in self._asked_to_end if each is simulator or each is agent]
        return Observation(
            time_s=now_s,
            memory=self._read_memory(ours | further, agents),
            simulator=replace(seen, ended=self._with_intent(seen.ended, simulator)),
            agent=replace(agent_seen, ended=self._with_intent(agent_seen.ended, agent)),
        )

    def close(self) -> None:
        """Close connection and files."""
        self._simulator.close()
        self._agent.close()

    def _with_intent(self, ended: Ended | None, program: Program | None) -> Ended | None:
        if ended is None:
            return None
        return replace(ended, planned=any(program is each for each in self._asked_to_end))
