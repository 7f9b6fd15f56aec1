"""When training stood still, for want of what, and what that cost: as it is seen, look by look.

A standstill begins with the last look at which training moved, once something is wanting and nothing moves; it ends
with the first look at which nothing is wanting and training moves again. ``launcher.json`` has the one that lasts, an
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


class Standstills:
    """Of one run.

    Attributes:
        over: the run is about to end; no other standstill begins.
    """

    def __init__(self, journal: Journal) -> None:
        self.over = False
        self._journal = journal
        self._beat: Heartbeat | None = None
        self._moved_s: float | None = None
        self._moving_s: float | None = None
        """Since when it moves at each look."""
        self._first: Heartbeat | None = None

    def look(self, beat: Heartbeat | None, wanting: Collection[str], incident: str) -> None:
        """Take up a look.

        Args:
            beat: the agent's newest heartbeat.
            wanting: what training waits for.
            incident: that is being dealt with, or was found.
        """
        now_s, moves = self._journal.time_s, self._moves(beat)
        if self.over:
            return
        if (stood := self._journal.state.standstill) is not None:
            down = dict(stood.down) | {each: (stood.down.get(each, (now_s,))[0], now_s) for each in wanting}
            self._journal.change(standstill=replace(stood, down=down, incident=stood.incident or incident))
            if moves and not wanting:
                self._over(now_s, goes_on=True)
        elif wanting and not moves and self._moved_s is not None and now_s - self._moved_s >= STILL_S:
            self._begin(self._moved_s, dict.fromkeys(wanting, (now_s, now_s)), incident)
        self._moving_s = (self._moving_s or now_s) if moves else None
        self._moved_s = now_s if moves else self._moved_s

    def went_on(self, incident: str) -> None:
        """Take note that an agent outlived its launcher: for that incident training never stood."""
        stood = self._journal.state.standstill
        if stood is not None and stood.incident == incident:
            self._journal.change(standstill=None)

    def _begin(self, from_s: float, down: dict[str, tuple[float, float]], incident: str) -> None:
        last = self._beat
        had = (0, None, None) if last is None else (last.pid, last.step, last.updates)
        self._journal.change(standstill=Standstill(incident, from_s, down, *had))
        self._journal.save()

    def end(self) -> None:
        """Take note that the run ends, and its standstill with it, unless training moves by now."""
        until_s = self._journal.time_s if self._moving_s is None else self._moving_s
        self._over(until_s, goes_on=self._moving_s is not None)

    def _over(self, until_s: float, *, goes_on: bool) -> None:
        stood = self._journal.state.standstill
        if stood is None:
            return
        self._journal.change(standstill=None)
        self._journal.event(
            LauncherEvent.STOOD_STILL,
            incident=stood.incident,
            from_s=round(stood.from_s, 3),
            until_s=until_s,
            down=stood.down,
            goes_on=goes_on,
            **(self._lost(stood) if goes_on else {}),
        )

    def _lost(self, stood: Standstill) -> dict[str, Any]:
        """Return what had to be done again, by the first heartbeat of the agent that goes on."""
        first = self._first
        if first is None or first.pid == stood.pid:
            return {"steps_lost": 0, "updates_repeated": 0}
        before = {"steps_lost": (stood.step, first.step), "updates_repeated": (stood.updates, first.updates)}
        return {name: None if had is None else max(0, had - has) for name, (had, has) in before.items()}

    def _moves(self, beat: Heartbeat | None) -> bool:
        """Return whether training has moved since the heartbeat before, of the same agent."""
        if beat is None or beat.phase is Phase.STARTING:
            return False
        last, self._beat = self._beat, beat
        if last is None or last.pid != beat.pid:
            self._first = beat
            return False
        return _done(beat) != _done(last)


def _done(beat: Heartbeat) -> tuple[int, int, int]:
    """Return what grows while training moves; in an evaluation that is ticks alone."""
    return beat.step, beat.updates, beat.ticks if beat.phase is Phase.EVALUATING else 0
