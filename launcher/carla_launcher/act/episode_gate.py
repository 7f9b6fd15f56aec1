"""Waiting for an episode's end, so that what is restarted costs no unfinished episode."""

from __future__ import annotations

from carla_launcher.observe.observation import AgentSeen

LONGEST_S = 120.0
"""An episode lasts a minute of driving; an agent that only learns, or evaluates, is not waited for."""


class EpisodeGate:
    """Opens when an episode has ended since it was first asked about, or after a while."""

    def __init__(self) -> None:
        self._asked: tuple[float, int] | None = None

    def is_open(self, now_s: float, agent: AgentSeen) -> bool:
        """Return whether to go on now."""
        if agent.beat is None:
            return True
        if self._asked is None:
            self._asked = now_s, agent.beat.episode
            return False
        since_s, episode = self._asked
        return agent.beat.episode != episode or now_s - since_s >= LONGEST_S

    def close(self) -> None:
        """Forget what was asked."""
        self._asked = None
