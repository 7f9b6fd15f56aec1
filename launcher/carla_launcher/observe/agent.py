"""The agent as it shows from outside: its process, ``agent.json`` and its age by the launcher's own clock, new events.

A heartbeat that an earlier process left, a torn one, or one whose wall clock jumped causes
nothing: only that the file says another ``time`` than before counts.
"""

from __future__ import annotations

from carla_launcher.observe.observation import AgentSeen, Program
from carla_launcher.observe.tail import Tail
from carla_run.heartbeat import Heartbeat, read_heartbeat
from carla_run.paths import RunPaths


class AgentMonitor:
    """Looks at one agent after another of one run. Create it before the first starts: what files hold is the past."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._events = Tail(run.agent_events, from_end=True)
        self._program: Program | None = None
        self._beat: Heartbeat | None = None
        self._changed_s: float | None = None
        self._last = read_heartbeat(run.heartbeat)

    def restart_age(self, now_s: float) -> None:
        """Count the last beat's age from now: there was no look for a while, and a machine that slept doesn't beat."""
        self._changed_s = None if self._changed_s is None else now_s

    def look(self, now_s: float, program: Program | None) -> AgentSeen:
        """Return what it is now; ``program`` is None if there is none."""
        if program is not self._program:
            # What stands there is the past: the next change is the first beat of a new process.
            self._program, self._last = program, read_heartbeat(self._run.heartbeat)
            self._beat, self._changed_s = None, None
        # The end first, the files after it: then they hold the last words.
        ended = None if program is None else program.poll()
        self._read_beat(now_s)
        events = tuple(self._events.objects())
        if program is None:
            return AgentSeen(running=False, events=events)
        age_s = 0.0 if self._changed_s is None else max(0.0, now_s - self._changed_s)
        return AgentSeen(ended is None, ended, self._beat, age_s, events, program.pid)

    def close(self) -> None:
        """Let go of the events' file."""
        self._events.close()

    def _read_beat(self, now_s: float) -> None:
        found, last = read_heartbeat(self._run.heartbeat), self._last
        if found is not None and (last is None or (found.time, found.pid) != (last.time, last.pid)):
            self._last, self._beat, self._changed_s = found, found, now_s
