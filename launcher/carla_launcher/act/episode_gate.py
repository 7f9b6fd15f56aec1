"""Waits for the end of an episode, so that a restart interrupts no episode."""

from __future__ import annotations

from carla_launcher.observe.observation import AgentSeen

MAX_WAIT_S = 120.0
"""Longest wait. An episode lasts about a minute of driving; an agent that only learns or evaluates ends none."""


class EpisodeGate:
    """Opens at the end of an episode after the first question, or after ``MAX_WAIT_S``."""

    def __init__(self) -> None:
        self._asked: tuple[float, int] | None = None

    def is_open(self, now_s: float, agent: AgentSeen) -> bool:
        """Return whether to act now."""
        if agent.beat is None:
            return True
        if self._asked is None:
            self._asked = now_s, agent.beat.episode
            return False
        since_s, episode = self._asked
        return agent.beat.episode != episode or now_s - since_s >= MAX_WAIT_S

    def close(self) -> None:
        """Forget earlier questions."""
        self._asked = None
