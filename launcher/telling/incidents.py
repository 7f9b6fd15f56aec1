"""Incidents out of ``launcher-events.jsonl``: each finding joined with what was done about it, until training goes on.

Pure: rows in, incidents out. Which event belongs to which incident is decided here and nowhere else: by its cause's
sentence, else by what is under repair, else by what holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.decide.detectors.causes import Cause
from launcher.run_directory import inner, number
from launcher.telling.incident import CLIMB, FAILED, GONE, PLANNED, Deed, Found, Incident, Pause

JOINT_S = 1.0
"""What is found at one look is journalled within this time."""
DEEDS = {
    "simulator_restart": "simulator started again",
    "simulator_failed": "a start of the simulator failed",
    "agent_restart": "agent started again",
    "agent_killed": "agent killed",
    "simulator_killed": "simulator killed",
    "rung_taken": "gave way: {rung}",
    "rung_adopted": "the agent gave way by itself: {rung}",
    "rung_left": "taken back: {rung}",
    "restore_failed": "the climb before had failed: holds for {hold_s} s next time",
    "draining": "checkpoint, simulator given back",
    "waiting": "{reason}",
    "request_unanswered": "the agent didn't answer `{kind}`",
    "crash_loop": "no restart is left",
    "agent_adopted": "agent found alive, taken over",
    "simulator_adopted": "simulator found alive, taken over",
}
"""Events that are something done, in words for people."""
DOWN = {
    "simulator_restart": "simulator",
    "simulator_failed": "simulator",
    "agent_restart": "agent",
    "draining": "draining",
}
"""Events with which something is taken from training until it is back."""
UP = {"simulator_healthy": "simulator", "verified": "agent"}
ORDERLY = (0, 2, 65, 75)
"""Exit codes of an agent that ended by its contract."""

Row = Mapping[str, Any]


def joined(rows: Iterable[Row]) -> list[Incident]:
    """Return all incidents, in the order in which they began; rows of any content are survived."""
    joiner = _Joiner()
    for row in rows:
        joiner.hear(row)
    return joiner.incidents


def moment(row: Row) -> float:
    """Return a row's time, seconds since 1970; 0 where it has none."""
    return number(row.get("time")) or 0.0


def words(row: Row, key: str) -> str:
    """Return a row's text; empty where it has none."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


class _Joiner:
    """Hears one event after the other."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._open: list[Incident] = []
        self._repair: Incident | None = None
        self._missing: set[str] = set()
        self._last_s: float | None = None
        self._agent_code: float | None = None

    def hear(self, row: Row) -> None:
        event = words(row, "event")
        if event == "finding":
            self._found(row)
        elif event == "finding_over":
            self._over(row)
        elif event == "run_started":
            self._started(row)
        elif event == "run_ended":
            self._ended(row)
        elif event == "agent_ended":
            self._agent_code = number(row.get("exit_code"))
        elif event in DEEDS:
            self._done(event, row)
        self._count_missing(event, row)
        self._last_s = None if event == "run_ended" else moment(row)

    # What is found

    def _found(self, row: Row) -> None:
        found = _finding(row)
        if found.cause == Cause.OUT_OF_BAND.value:
            return
        incident = self._same_look(found.time_s)
        if incident is None and found.cause in FAILED:
            incident = self._repair
        incident = incident or self._begin(found)
        if found not in incident.found:
            incident.found.append(found)
        incident.held.add(found.key)

    def _same_look(self, now_s: float) -> Incident | None:
        """Return the incident that was noticed by the very look which found this."""
        last = self._open[-1] if self._open else None
        return last if last and last.cause != CLIMB and 0 <= now_s - last.found[-1].time_s <= JOINT_S else None

    def _over(self, row: Row) -> None:
        key = _finding(row).key
        for incident in [each for each in self._open if key in each.held]:
            incident.held.discard(key)
            self._close_if_done(incident, moment(row))

    # What is done

    def _done(self, event: str, row: Row) -> None:
        now_s = moment(row)
        if event.endswith("_adopted") and event != "rung_adopted" and self._repair is None and not self._open:
            return  # the launcher before had ended by itself
        incident = self._concerned(event, row)
        incident.deeds.append(Deed(now_s, event, DEEDS[event].format_map(_Known(row))))
        if event in DOWN:
            self._stands(incident, now_s)
        elif event == "agent_adopted" and incident.cause == GONE:
            incident.pauses.clear()  # the agent had gone on all the while
            self._repair, self._missing = None, set()
            self._close_if_done(incident, now_s)

    def _concerned(self, event: str, row: Row) -> Incident:
        """Return the incident about which this was done; a new one where none fits."""
        if event == "rung_left":
            self._end_climbs(moment(row))
            return self._begin(Found(moment(row), CLIMB, f"restores {words(row, 'rung')}"))
        said, now_s = _skeleton(words(row, "cause")), moment(row)
        recent = [each for each in self.incidents[-20:] if each.over_s is None or 0 <= now_s - each.over_s <= JOINT_S]
        same = [each for each in recent if said and any(_skeleton(found.sentence) == said for found in each.found)]
        fitting = [*([self._repair] if self._repair else []), *same]
        if fitting:
            return fitting[-1]
        return self._open[-1] if self._open else self._begin(Found(now_s, self._label(event, row), words(row, "cause")))

    def _label(self, event: str, row: Row) -> str:
        """Return the cause of something done that no finding came before."""
        if words(row, "diagnosis"):
            return words(row, "diagnosis")
        if event == "rung_adopted":
            vram = words(row, "kind") == "vram"
            return Cause.AGENT_CUDA_OOM.value if vram else Cause.AGENT_HOST_OOM.value
        if event == "rung_taken":
            return Cause.PRESSURE.value
        crashed = event == "agent_restart" and self._agent_code not in (None, *ORDERLY)
        return Cause.AGENT_CRASH.value if crashed else PLANNED

    def _begin(self, found: Found) -> Incident:
        incident = Incident([found])
        self.incidents.append(incident)
        self._open.append(incident)
        return incident

    # Standing still

    def _stands(self, incident: Incident, now_s: float) -> None:
        if self._repair not in (None, incident):
            return  # it stands already
        self._repair = incident
        if not incident.pauses or incident.pauses[-1].until_s is not None:
            first = not incident.pauses and incident.cause in FAILED
            incident.pauses.append(Pause(incident.began_s if first else now_s))

    def _count_missing(self, event: str, row: Row) -> None:
        if event in DOWN:
            self._missing.add(DOWN[event])
        elif event == "agent_starts" and self._repair is not None:
            self._missing = self._missing - {"draining", "drained"} | {"agent"}
        elif event in ("request_answered", "request_unanswered"):
            self._answered(words(row, "kind"), row)
        self._missing.discard(UP.get(event, ""))
        if self._repair is not None and not self._missing:
            self._goes_on(moment(row))

    def _answered(self, kind: str, row: Row) -> None:
        if kind == "drain":
            self._missing.discard("draining")
            self._missing |= {"drained"} if row.get("ok") else set()
        elif kind == "resume":
            self._missing.discard("drained")
        elif kind == "apply" and row.get("ok") and self._repair is None:
            self._end_climbs(moment(row))

    def _goes_on(self, now_s: float) -> None:
        incident, self._repair = self._repair, None
        assert incident is not None
        incident.pauses[-1].until_s = now_s
        self._close_if_done(incident, now_s)

    def _end_climbs(self, now_s: float) -> None:
        for climb in [each for each in self._open if each.cause == CLIMB and each is not self._repair]:
            self._close_if_done(climb, now_s)

    def _close_if_done(self, incident: Incident, now_s: float) -> None:
        if incident in self._open and not incident.held and incident is not self._repair:
            incident.over_s = now_s
            self._open.remove(incident)

    # Launchers

    def _started(self, row: Row) -> None:
        if self._last_s is not None:
            self._leave_open()
            gone = "the launcher ended without a word; another one went on"
            self._repair, self._missing = self._begin(Found(self._last_s, GONE, gone)), {"agent"}
            self._repair.deeds.append(Deed(moment(row), "run_started", "launcher started again"))
            self._repair.pauses.append(Pause(self._last_s))

    def _ended(self, row: Row) -> None:
        reason = words(row, "cause")
        for incident in self._open:
            incident.ended_run = any(each.sentence and reason.startswith(each.sentence) for each in incident.found)
            incident.over_s = moment(row)
        self._leave_open()

    def _leave_open(self) -> None:
        self._open, self._repair, self._missing = [], None, set()


class _Known(dict[str, Any]):
    """A row for ``format_map``; what it lacks is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def _finding(row: Row) -> Found:
    unanswered_s = number(inner(row, "numbers").get("no_tick_for_s")) or 0.0
    return Found(
        moment(row),
        words(row, "diagnosis"),
        words(row, "cause"),
        words(row, "pool"),
        words(row, "owner"),
        max(0.0, unanswered_s),
    )


def _skeleton(sentence: str) -> str:
    """Return a sentence without its figures: the same finding says others at every look."""
    return re.sub(r"[\d.,]+", "#", sentence)
