"""The agent as its files show it: ``agent.json``, its age by the launcher's own clock, and new events.

Owns no file of these. A heartbeat that an earlier process left, a torn one, or one whose wall clock jumped causes
nothing: only that the file says another ``time`` than before counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contract.paths import RunPaths
from contract.readers import inner, number, read_object
from launcher.watching.observation import Heartbeat
from launcher.watching.tail import Tail


@dataclass(frozen=True)
class Pulse:
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
        self._mark: tuple[object, object] = (None, None)
        self.begin()

    def begin(self) -> None:
        """Take what stands there for the past: the next change is the first beat of a new process."""
        self._mark = _mark(read_object(self._run.heartbeat))
        self._beat, self._changed_s = None, None

    def restart_age(self, now_s: float) -> None:
        """Count the last beat's age from now: nobody looked for a while, and a machine that slept doesn't beat."""
        self._changed_s = None if self._changed_s is None else now_s

    def look(self, now_s: float) -> Pulse:
        """Return the last whole heartbeat of the present process, how long it has been the last, and new events."""
        read = read_object(self._run.heartbeat)
        mark = _mark(read)
        if read and mark != self._mark:
            self._mark, self._beat, self._changed_s = mark, heartbeat(read), now_s
        age_s = 0.0 if self._changed_s is None else max(0.0, now_s - self._changed_s)
        return Pulse(self._beat, age_s, tuple(row for line in self._events.look() if (row := _object(line))))

    def close(self) -> None:
        """Let go of the events' file."""
        self._events.close()


def heartbeat(read: Mapping[str, Any]) -> Heartbeat:
    """Return what the file's object says, as far as it says it; odd values count as missing."""
    peaks = inner(inner(read, "memory"), "peak_by_phase_mib")
    return Heartbeat(
        pid=_whole(read, "pid") or None,
        phase=_word(read, "phase"),
        step=_whole(read, "step"),
        total_steps=_whole(read, "total_steps"),
        updates=_whole(read, "updates"),
        episode=_whole(read, "episode"),
        device=_word(read, "device"),
        micro_batch=_whole(read, "micro_batch"),
        ticks=_whole(read, "ticks"),
        tick_outstanding_s=max(0.0, number(read.get("tick_outstanding_s")) or 0.0),
        collector_restarts=_whole(read, "collector_restarts"),
        peak_by_phase_mib={str(phase): _figures(inner(peaks, phase)) for phase in peaks},
        doing=_word(inner(read, "collector"), "doing"),
        exit_code=None if number(read.get("exit_code")) is None else _whole(read, "exit_code"),
        device_reserved_mib=number(inner(inner(read, "memory"), "device_mib").get("reserved")),
        cuda=_word(read, "cuda"),
        gave_way=_word(read, "gave_way"),
    )


def _mark(read: Mapping[str, Any]) -> tuple[object, object]:
    """Return what tells one beat from the next."""
    return number(read.get("time")), number(read.get("pid"))


def _whole(read: Mapping[str, Any], key: str) -> int:
    return int(number(read.get(key)) or 0)


def _word(read: Mapping[str, Any], key: str) -> str:
    value = read.get(key)
    return value if isinstance(value, str) else ""


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    figures = {str(name): number(value) for name, value in row.items()}
    return {name: value for name, value in figures.items() if value is not None}


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
