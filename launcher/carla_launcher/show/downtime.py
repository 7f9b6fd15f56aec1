"""What incidents cost: seconds in which training stood, updates made again, steps that went back.

Pure. The launcher's events say when something was ready again; that it then really drove is read off the agent's
events, else off the timeline: its lines are some seconds apart, and what was driven between two of them tells the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from carla_launcher.show.incidents import HUNG, Cost, Incident, Pause, moment
from carla_launcher.show.timeline import DRIVES, Progress, Spans, Timeline, union
from carla_run.readers import number, points

PATIENCE_S = 300.0
"""Steps that come later than this after everything was ready don't tell when driving began: an evaluation was on."""
LINES_ASKED = 20
"""Of the timeline before an incident, for how many updates there were."""

Row = Mapping[str, Any]


class Downtime:
    """What the run's files say about progress, ready to be asked about one incident after the other."""

    def __init__(self, timeline: Timeline, agent_events: Iterable[Row], metrics: Sequence[Row], end_s: float) -> None:
        """Take ``end_s``, the last moment that the files know of, for the end of what never went on."""
        self._timeline, self._end_s = timeline, end_s
        events = sorted(agent_events, key=moment)
        self._driving_s = [moment(row) for row in events if row.get("event") == "collector_ready"]
        self._resumed = [row for row in events if row.get("event") in ("resumed", "started")]
        self._updates_at = points(metrics, "train/n_updates")

    def cost(self, incident: Incident, next_s: float) -> Cost:
        """Return what an incident cost; ``next_s`` is when the next one began."""
        stood = union(self._stood(incident, pause, next_s) for pause in incident.pauses)
        if not incident.pauses and incident.unanswered_s:
            stood = [(incident.began_s - incident.unanswered_s, incident.over_s or self._end_s)]
        if not stood:
            return Cost()
        never = incident.ended_run or incident.over_s is None or incident.stands
        resumed = [row for row in self._resumed if any(a <= moment(row) <= b for a, b in stood)]
        return Cost(
            tuple(stood),
            None if never else stood[-1][1],
            self._steps_lost(stood, resumed),
            self._updates_repeated(incident, stood[0][0], resumed),
        )

    def _stood(self, incident: Incident, pause: Pause, next_s: float) -> tuple[float, float]:
        from_s = pause.from_s
        if incident.cause in HUNG and pause is incident.pauses[0]:
            from_s = min(from_s - incident.unanswered_s, self._stalled_since(from_s))
        if pause.until_s is None:
            return from_s, max(from_s, self._drives_after(from_s) or incident.over_s or self._end_s)
        return from_s, max(from_s, self._drove_again(pause.until_s, from_s, next_s))

    def _drives_after(self, from_s: float) -> float | None:
        """Return since when steps grow from one line to the next though nobody said that all was ready; None if not.

        What came next may have ended the run before it was said: a card that is lost, say, while the agent drives on.
        """
        rows = pairwise(self._timeline.steps_after(from_s))
        return next((time_s for (time_s, step), (_, later) in rows if later > step), None)

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

    def _drove_again(self, ready_s: float, from_s: float, next_s: float) -> float:
        """Return when steps came again after all was ready: by the collector's word, else by the timeline."""
        before = self._timeline.last_step(ready_s)
        limit_s = min(ready_s + PATIENCE_S, max(next_s, ready_s))
        rows = self._timeline.steps_after(ready_s)
        grown_s, grown = next((row for row in rows if before is None or row[1] > before[1]), (None, 0.0))
        if grown_s is None or grown_s > limit_s:
            return ready_s
        if reported := [each for each in self._driving_s if from_s < each <= grown_s]:
            return max(ready_s, reported[-1])
        if before is None:
            return grown_s
        # How long nothing was driven between the two lines, by the speed from the second one to the next.
        before_s, had = before
        stood_s = grown_s - before_s
        later_s, later = next(rows, (grown_s, grown))
        if later_s > grown_s and later > grown:
            stood_s -= (grown - had) * (later_s - grown_s) / (later - grown)
        return min(max(ready_s, max(from_s, before_s) + stood_s), grown_s)

    def _steps_lost(self, stood: Spans, resumed: Sequence[Row]) -> float | None:
        before = self._timeline.last_step(stood[0][0])
        reported = [number(row.get("steps")) for row in resumed]
        later = [step for _, step in islice(self._timeline.steps_after(stood[-1][1]), 1)]
        after = min((steps for steps in (*reported, *later) if steps is not None), default=None)
        return None if before is None or after is None else max(0.0, before[1] - after)

    def _updates_repeated(self, incident: Incident, from_s: float, resumed: Sequence[Row]) -> float | None:
        if all(action.event != "agent_restart" for action in incident.actions):
            return 0.0  # the same process went on
        last_step = self._timeline.last_step(from_s)
        last = islice(self._timeline.backwards(from_s), LINES_ASKED)
        known = [row.updates for row in last if row.updates is not None]
        known += [updates for at, updates in self._updates_at if last_step is not None and at <= last_step[1]]
        reported = [updates for row in resumed if (updates := number(row.get("updates"))) is not None]
        return max(0.0, max(known) - min(reported)) if known and reported else None
