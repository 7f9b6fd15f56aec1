"""The agent as its files show it: ``agent.json``, its age by the launcher's own clock, and new events.

A heartbeat that an earlier process left, a torn one, or one whose wall clock jumped causes
nothing: only that the file says another ``time`` than before counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from carla_launcher.observe.tail import Tail
from carla_run.heartbeat import Heartbeat, read_heartbeat
from carla_run.paths import RunPaths


@dataclass(frozen=True)
class AgentNews:
    """What one look at the agent's files shows; the fields are those of ``AgentSeen``."""

    beat: Heartbeat | None = None
    age_s: float = 0.0
    events: tuple[Mapping[str, Any], ...] = ()


class AgentFiles:
    """Looks at the files of one run. Create it before the agent starts: what they hold by then is the past."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._events = Tail(run.agent_events, from_end=True)
        self._beat: Heartbeat | None = None
        self._changed_s: float | None = None
        self._last: Heartbeat | None = None
        self.turn_to_next()

    def turn_to_next(self) -> None:
        """Take what stands there for the past: the next change is the first beat of a new process."""
        self._last = read_heartbeat(self._run.heartbeat)
        self._beat, self._changed_s = None, None

    def restart_age(self, now_s: float) -> None:
        """Count the last beat's age from now: there was no look for a while, and a machine that slept doesn't beat."""
        self._changed_s = None if self._changed_s is None else now_s

    def look(self, now_s: float) -> AgentNews:
        """Return the last whole heartbeat of the present process, how long it has been the last, and new events."""
        found = read_heartbeat(self._run.heartbeat)
        if found is not None and not _same_beat(found, self._last):
            self._last, self._beat, self._changed_s = found, found, now_s
        age_s = 0.0 if self._changed_s is None else max(0.0, now_s - self._changed_s)
        return AgentNews(self._beat, age_s, tuple(self._events.objects()))

    def close(self) -> None:
        """Let go of the events' file."""
        self._events.close()


def _same_beat(found: Heartbeat, last: Heartbeat | None) -> bool:
    return last is not None and (found.time, found.pid) == (last.time, last.pid)
