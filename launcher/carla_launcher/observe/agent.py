"""Observes the agent from outside: its process, its heartbeat ``agent.json`` and the heartbeat's age, new events.

The age is measured with the launcher's clock, from the moment at which the file's ``time`` changed. So a heartbeat of
an earlier process, a torn file or a jump of the wall clock has no effect.
"""

from __future__ import annotations

from carla_launcher.observe.observation import AgentSeen, Program
from carla_launcher.observe.tail import Tail
from carla_run.heartbeat import Heartbeat, read_heartbeat
from carla_run.paths import RunPaths


class AgentMonitor:
    """Observes the agents of one run, one after the other. Create it before the first one starts."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._events = Tail(run.agent_events, from_end=True)
        self._program: Program | None = None
        self._beat: Heartbeat | None = None
        self._changed_s: float | None = None
        self._last = read_heartbeat(run.heartbeat)

    def restart_age(self, now_s: float) -> None:
        """Count the heartbeat's age from now, after a gap between looks: a suspended machine sends no heartbeat."""
        self._changed_s = None if self._changed_s is None else now_s

    def look(self, now_s: float, program: Program | None) -> AgentSeen:
        """Return the agent's state now; ``program`` is None if no agent runs."""
        if program is not self._program:
            # The file still holds an earlier heartbeat: its next change is the first heartbeat of the new process.
            self._program, self._last = program, read_heartbeat(self._run.heartbeat)
            self._beat, self._changed_s = None, None
        # Poll before reading the files, so that they are complete if the process has ended.
        ended = None if program is None else program.poll()
        self._read_beat(now_s)
        events = tuple(self._events.objects())
        if program is None:
            return AgentSeen(running=False, events=events)
        age_s = 0.0 if self._changed_s is None else max(0.0, now_s - self._changed_s)
        return AgentSeen(ended is None, ended, self._beat, age_s, events, program.pid)

    def close(self) -> None:
        """Close the file of events."""
        self._events.close()

    def _read_beat(self, now_s: float) -> None:
        found, last = read_heartbeat(self._run.heartbeat), self._last
        if found is not None and (last is None or (found.time, found.pid) != (last.time, last.pid)):
            self._last, self._beat, self._changed_s = found, found, now_s
