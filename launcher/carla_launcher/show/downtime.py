"""What incidents cost: seconds in which training stood, updates made again, steps that went back.

Pure. The launcher's events say when something was ready again; that it then really drove is read off the agent's
events, else off the timeline: its lines are some seconds apart, and what was driven between two of them tells the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from carla_launcher.show.incidents import HUNG, Incident, Pause, moment
from carla_launcher.show.timeline import DRIVES, Progress, Timeline
from carla_run.readers import number

PATIENCE_S = 300.0
"""Steps that come later than this after everything was ready don't tell when driving began: an evaluation was on."""
LINES_ASKED = 20
"""Of the timeline before an incident, for how many updates there were."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """Of one incident.

    Attributes:
        stood: spans in which training stood, seconds since 1970; empty if it went on.
        back_s: when it drove again; None if it never stood, or never drove again.
        steps_lost: that the run had and had no more; None where no file says.
        updates_repeated: at least so many; None where no file says.
    """

    stood: tuple[tuple[float, float], ...]
    back_s: float | None
    steps_lost: float | None
    updates_repeated: float | None

    @property
    def stood_s(self) -> float:
        """For how long training stood."""
        return sum(until_s - from_s for from_s, until_s in self.stood)


class Downtime:
    """What the run's files say about progress, ready to be asked about one incident after the other."""

    def __init__(self, timeline: Timeline, agent_events: Iterable[Row], metrics: Iterable[Row], end_s: float) -> None:
        """Take ``end_s``, the last moment that the files know of, for the end of what never went on."""
        self._timeline, self._end_s = timeline, end_s
        events = sorted(agent_events, key=moment)
        self._driving_s = [moment(row) for row in events if row.get("event") == "collector_ready"]
        self._resumed = [row for row in events if row.get("event") in ("resumed", "started")]
        pairs = [(number(row.get("step")), number(row.get("train/n_updates"))) for row in metrics]
        self._updates_at = [(step, updates) for step, updates in pairs if step is not None and updates is not None]

    def cost(self, incident: Incident, next_s: float) -> Cost:
        """Return what an incident cost; ``next_s`` is when the next one began."""
        stood = [self._stood(incident, pause, next_s) for pause in incident.pauses]
        if not stood and (hung := max((each.unanswered_s for each in incident.found), default=0.0)):
            stood = [(incident.began_s - hung, incident.over_s or self._end_s)]
        went_on = bool(stood) and not incident.ended_run and incident.over_s is not None
        if incident.pauses and incident.pauses[-1].until_s is None:
            went_on = False
        merged = union(stood)
        resumed = [row for row in self._resumed if any(a <= moment(row) <= b for a, b in merged)]
        return Cost(
            tuple(merged),
            merged[-1][1] if went_on else None,
            self._steps_lost(merged, resumed) if merged else None,
            self._updates_repeated(incident, merged, resumed) if merged else None,
        )

    def _stood(self, incident: Incident, pause: Pause, next_s: float) -> tuple[float, float]:
        from_s = pause.from_s
        if incident.cause in HUNG and pause is incident.pauses[0]:
            told_s = max(each.unanswered_s for each in incident.found)
            from_s = min(pause.from_s - told_s, self._stalled_since(pause.from_s))
        if pause.until_s is None:
            return from_s, max(from_s, self._drives_after(from_s) or incident.over_s or self._end_s)
        return from_s, max(from_s, self._drove_again(pause, from_s, next_s))

    def _drives_after(self, from_s: float) -> float | None:
        """Return since when steps grow from one line to the next though nobody said that all was ready; None if not.

        What came next may have ended the run before it was said: a card that is lost, say, while the agent drives on.
        """
        rows = [row for row in self._timeline.after(from_s) if row.step is not None]
        return next((row.time_s for row, later in pairwise(rows) if (later.step or 0) > (row.step or 0)), None)

    def _stalled_since(self, moment_s: float) -> float:
        """Return since when the step hadn't grown, if two lines of the timeline show that; else the moment itself."""
        last: Progress | None = None
        stalled_s = moment_s
        for row in self._timeline.backwards(moment_s):
            last = last or row
            if row.step is None or row.step != last.step or row.phase not in DRIVES:
                break
            stalled_s = row.time_s
        return moment_s if last is None or stalled_s >= last.time_s else stalled_s

    def _drove_again(self, pause: Pause, from_s: float, next_s: float) -> float:
        """Return when steps came again after all was ready: by the collector's word, else by the timeline."""
        ready_s = pause.until_s or from_s
        before = next((row for row in self._timeline.backwards(ready_s) if row.step is not None), None)
        limit_s = min(ready_s + PATIENCE_S, max(next_s, ready_s))
        rows = (row for row in self._timeline.after(ready_s) if row.step is not None)
        grown = next((row for row in rows if before is None or (row.step or 0) > (before.step or 0)), None)
        if grown is None or grown.time_s > limit_s:
            return ready_s
        reported = [each for each in self._driving_s if from_s < each <= grown.time_s]
        if reported or before is None:
            return max(ready_s, reported[-1]) if reported else grown.time_s
        stood_s = _stood_between(before, grown, next(rows, None))
        return min(max(ready_s, max(from_s, before.time_s) + stood_s), grown.time_s)

    def _steps_lost(self, stood: Sequence[tuple[float, float]], resumed: Sequence[Row]) -> float | None:
        before = self._step_at(stood[0][0])
        reported = [number(row.get("steps")) for row in resumed]
        later = next((row.step for row in self._timeline.after(stood[-1][1]) if row.step is not None), None)
        after = min((steps for steps in (*reported, later) if steps is not None), default=None)
        return None if before is None or after is None else max(0.0, before - after)

    def _updates_repeated(
        self, incident: Incident, stood: Sequence[tuple[float, float]], resumed: Sequence[Row]
    ) -> float | None:
        if all(action.event != "agent_restart" for action in incident.actions):
            return 0.0  # the same process went on
        step = self._step_at(stood[0][0])
        last = islice(self._timeline.backwards(stood[0][0]), LINES_ASKED)
        known = [row.updates for row in last if row.updates is not None]
        known += [updates for at, updates in self._updates_at if step is not None and at <= step]
        reported = [updates for row in resumed if (updates := number(row.get("updates"))) is not None]
        return max(0.0, max(known) - min(reported)) if known and reported else None

    def _step_at(self, moment_s: float) -> float | None:
        """Return the last step that was told by then."""
        return next((row.step for row in self._timeline.backwards(moment_s) if row.step is not None), None)


def _stood_between(before: Progress, grown: Progress, later: Progress | None) -> float:
    """Return how long nothing was driven between two lines, by the speed from the second one to the next."""
    between_s, driven = grown.time_s - before.time_s, (grown.step or 0) - (before.step or 0)
    if later is None or later.time_s <= grown.time_s or (later.step or 0) <= (grown.step or 0):
        return between_s
    return between_s - driven * (later.time_s - grown.time_s) / ((later.step or 0) - (grown.step or 0))


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans in order, those that touch as one."""
    merged: list[tuple[float, float]] = []
    for from_s, until_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until_s))
        else:
            merged.append((from_s, until_s))
    return merged
