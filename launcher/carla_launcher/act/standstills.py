"""Standstills of training: when, what training waited for, and what was lost.

A standstill begins with the last look at which training progressed, if a program is then missing. It ends with the
first look at which training progresses for good. ``launcher.json`` has the present one, and an event ``stood_still``
records each past one for the reports.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import Standstill
from carla_run.events import LauncherEvent
from carla_run.heartbeat import Heartbeat, Phase

STANDSTILL_S = 2.0
"""Time without progress that counts as a standstill; a heartbeat comes once a second."""
CONFIRM_S = 10.0
"""Time of progress that ends a standstill although a program is missing; a shorter one may be a last update."""


class Standstills:
    """The standstills of one run's training.

    Args:
        resumes: as the attribute.

    Attributes:
        resumes: the present program went on from a checkpoint. A start of another repeats all steps.
        over: the run is about to end, so no new standstill begins.
    """

    def __init__(self, journal: Journal, resumes: bool = True) -> None:
        self.over = False
        self.resumes = resumes
        self._journal = journal
        self._agent = 0.0
        self._first: Heartbeat | None = None
        self._last: Heartbeat | None = None
        self._moved_s: float | None = None
        self._pause: Standstill | None = None
        """A standstill that may be too short to count."""
        self._moving_s: float | None = None
        """Time since which training progresses at every look."""

    def look(self, beat: Heartbeat | None, agent: float, missing: Collection[str], incident: str) -> None:
        """Record a look.

        Args:
            beat: the agent's newest heartbeat.
            agent: start time of the agent, which distinguishes it from the next.
            missing: the programs that training waits for.
            incident: the present incident; empty if there is none.
        """
        if self.over:
            return
        now_s, before = self._journal.time_s, (self._agent, self._last)
        moves = self._made_progress(beat, agent)
        self._moving_s = (self._moving_s or now_s) if moves else None
        if (standstill := self._journal.state.standstill) is not None:
            self._journal.change(standstill=_extended(standstill, now_s, missing, incident))
            if self._moving_s is not None and (not missing or now_s - self._moving_s >= CONFIRM_S):
                self._end(self._moving_s, goes_on=True)
        elif moves:
            self._moved_s, self._pause = now_s, None
        elif self._moved_s is not None and (missing or self._pause is not None):
            self._pause = _extended(self._pause or _pause(self._moved_s, *before), now_s, missing, incident)
            if now_s - self._moved_s >= STANDSTILL_S or self._agent != self._pause.agent:
                self._journal.change(standstill=self._pause)
                self._journal.save()

    def training_resumed(self, incident: str) -> None:
        """Record that the agent outlived its launcher, so that this incident caused no standstill."""
        standstill = self._journal.state.standstill
        if standstill is not None and standstill.incidents == (incident,):
            self._journal.change(standstill=None)

    def end(self) -> None:
        """Record the end of the run, and of its standstill."""
        until_s = self._journal.time_s if self._moving_s is None else self._moving_s
        self._end(until_s, goes_on=self._moving_s is not None)

    def _end(self, until_s: float, *, goes_on: bool) -> None:
        standstill = self._journal.state.standstill
        if standstill is None:
            return
        self._moved_s, self._pause = until_s, None
        lost = self._lost(standstill)
        self._journal.change(standstill=None, steps_lost=self._journal.state.steps_lost + (lost["steps_lost"] or 0))
        self._journal.event(
            LauncherEvent.STOOD_STILL,
            incident=next(reversed(standstill.incidents), ""),
            incidents=standstill.incidents,
            from_s=round(standstill.from_s, 3),
            until_s=until_s,
            down=standstill.down,
            goes_on=goes_on,
            **lost,
        )

    def _lost(self, standstill: Standstill) -> dict[str, Any]:
        """Return the steps and updates that were lost, by the next agent's first heartbeat; None if unknown."""
        first = self._first
        had, has = (standstill.step, standstill.updates), (standstill.step, standstill.updates)
        if self._agent != standstill.agent and first is not None:
            has = first.step if self.resumes else 0, first.updates
        elif "agent" in standstill.down:
            has = None, None
        lost = [None if a is None or b is None else max(0, a - b) for a, b in zip(had, has, strict=True)]
        return dict(zip(("steps_lost", "updates_repeated"), lost, strict=True))

    def _made_progress(self, beat: Heartbeat | None, agent: float) -> bool:
        """Return whether training has progressed since the same agent's last heartbeat."""
        if beat is None or not beat.started:
            return False
        if agent != self._agent:
            self._agent, self._first, self._last = agent, beat, beat
            return False
        last, self._last = self._last, beat
        return last is not None and _done(beat) != _done(last)


def _pause(from_s: float, agent: float, last: Heartbeat | None) -> Standstill:
    step, updates = (None, None) if last is None else (last.step, last.updates)
    return Standstill((), from_s, {}, agent, step, updates)


def _extended(standstill: Standstill, now_s: float, missing: Collection[str], incident: str) -> Standstill:
    down = {each: (standstill.down.get(each, (now_s,))[0], now_s) for each in missing}
    others = tuple(each for each in standstill.incidents if each != incident)
    return replace(standstill, down={**standstill.down, **down}, incidents=(*others, incident) if incident else others)


def _done(beat: Heartbeat) -> tuple[int, int, int]:
    """Return the counters that grow while training progresses; during an evaluation only ticks do."""
    return beat.step, beat.updates, beat.ticks if beat.phase is Phase.EVALUATING else 0
