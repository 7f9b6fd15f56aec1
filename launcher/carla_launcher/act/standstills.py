"""When training stood still, for want of what, and what that cost: as it is seen, look by look.

A standstill begins with the last look at which training moved, once something is wanting and nothing moves; it ends
with the first look at which training moves again, and goes on with that. ``launcher.json`` has the one that lasts, an
event ``stood_still`` each that is over; reports take their figures from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import Standstill
from carla_run.events import LauncherEvent
from carla_run.heartbeat import Heartbeat, Phase

STILL_S = 2.0
"""A heartbeat comes once a second: a training that hasn't moved for longer stands."""
SURELY_S = 10.0
"""What moves for so long goes on, though a program doesn't look well; before that, it may be an update left over."""


class Standstills:
    """The standstills of one run's training.

    Attributes:
        over: the run is about to end; no other standstill begins.
    """

    def __init__(self, journal: Journal) -> None:
        self.over = False
        self._journal = journal
        self._agent = 0.0
        self._first: Heartbeat | None = None
        self._last: Heartbeat | None = None
        self._moved_s: float | None = None
        self._pause: Standstill | None = None
        """Something has been wanting since training moved last; it may not last."""
        self._moving_s: float | None = None
        """Since when it moves at each look."""

    def look(self, beat: Heartbeat | None, agent: float, wanting: Collection[str], incident: str) -> None:
        """Take up a look.

        Args:
            beat: the agent's newest heartbeat.
            agent: when it was started: by that one is told from the next.
            wanting: what training waits for.
            incident: that is being dealt with, or was found; empty for none.
        """
        if self.over:
            return
        now_s, before = self._journal.time_s, (self._agent, self._last)
        moves = self._moves(beat, agent)
        self._moving_s = (self._moving_s or now_s) if moves else None
        if (stood := self._journal.state.standstill) is not None:
            self._journal.change(standstill=_grown(stood, now_s, wanting, incident))
            if self._moving_s is not None and (not wanting or now_s - self._moving_s >= SURELY_S):
                self._end(self._moving_s, goes_on=True)
        elif moves:
            self._moved_s, self._pause = now_s, None
        elif self._moved_s is not None and (wanting or self._pause is not None):
            self._pause = _grown(self._pause or _pause(self._moved_s, *before), now_s, wanting, incident)
            if now_s - self._moved_s >= STILL_S:
                self._journal.change(standstill=self._pause)
                self._journal.save()

    def went_on(self, incident: str) -> None:
        """Take note that an agent outlived its launcher: for that incident training never stood."""
        stood = self._journal.state.standstill
        if stood is not None and stood.incidents == (incident,):
            self._journal.change(standstill=None)

    def end(self) -> None:
        """Take note that the run ends, and its standstill with it, unless training moves by now."""
        until_s = self._journal.time_s if self._moving_s is None else self._moving_s
        self._end(until_s, goes_on=self._moving_s is not None)

    def _end(self, until_s: float, *, goes_on: bool) -> None:
        stood = self._journal.state.standstill
        if stood is None:
            return
        self._moved_s, self._pause = until_s, None
        self._journal.change(standstill=None)
        self._journal.event(
            LauncherEvent.STOOD_STILL,
            incident=next(reversed(stood.incidents), ""),
            incidents=stood.incidents,
            from_s=round(stood.from_s, 3),
            until_s=until_s,
            down=stood.down,
            goes_on=goes_on,
            **self._lost(stood),
        )

    def _lost(self, stood: Standstill) -> dict[str, Any]:
        """Return what had to be done again, by the first heartbeat of the agent that goes on; None if none does."""
        first = self._first
        had, has = (stood.step, stood.updates), (stood.step, stood.updates)
        if self._agent != stood.agent and first is not None:
            has = first.step, first.updates
        elif "agent" in stood.down:
            has = None, None
        lost = [None if a is None or b is None else max(0, a - b) for a, b in zip(had, has, strict=True)]
        return dict(zip(("steps_lost", "updates_repeated"), lost, strict=True))

    def _moves(self, beat: Heartbeat | None, agent: float) -> bool:
        """Return whether training has moved since the heartbeat before, of the same agent."""
        if beat is None or beat.phase is Phase.STARTING:
            return False
        if agent != self._agent:
            self._agent, self._first, self._last = agent, beat, beat
            return False
        last, self._last = self._last, beat
        return last is not None and _done(beat) != _done(last)


def _pause(from_s: float, agent: float, last: Heartbeat | None) -> Standstill:
    step, updates = (None, None) if last is None else (last.step, last.updates)
    return Standstill((), from_s, {}, agent, step, updates)


def _grown(stood: Standstill, now_s: float, wanting: Collection[str], incident: str) -> Standstill:
    down = {each: (stood.down.get(each, (now_s,))[0], now_s) for each in wanting}
    others = tuple(each for each in stood.incidents if each != incident)
    return replace(stood, down={**stood.down, **down}, incidents=(*others, incident) if incident else others)


def _done(beat: Heartbeat) -> tuple[int, int, int]:
    """Return what grows while training moves; in an evaluation only ticks do."""
    return beat.step, beat.updates, beat.ticks if beat.phase is Phase.EVALUATING else 0
