"""A run in hindsight, as data: its launchers, what went wrong, who held what at that moment, what it cost.

``RunHistory`` takes the journal's rows one by one: for ``status`` as they come, for report, comparison and the live
page's charts all at once. What these show of costs is found by ``examine``, from the run's files and nothing else.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.decide.policy import RAN_OUT
from carla_launcher.show import timeline
from carla_launcher.show.downtime import Downtime
from carla_launcher.show.incidents import UP, Incident, finding_of, first_of, moment, words
from carla_launcher.show.timeline import Sample, Timeline, spans_s, union
from carla_run.heartbeat import Heartbeat, read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import read_lines

BEFORE_S, AFTER_S = 15.0, 1.5
"""About an incident's beginning: where to look for the moment at which memory was tightest."""
RAN_OUT_OF = {cause.value: kind.value for cause, kind in RAN_OUT.items()}
CHANGES = ("rung_taken", "rung_adopted", "rung_left", "simulator_restart", "agent_restart")
"""Events after which a restore's hold time begins again."""

Row = Mapping[str, Any]


@dataclass
class Session:
    """One launcher's time, seconds since 1970."""

    from_s: float
    until_s: float


class RunHistory:
    """What became of a run.

    Attributes:
        sessions: the launchers' times, in order.
        gathered: all incidents by their ids, in the order in which they began.
        findings: that hold, with the rows that say so, by what their end is recognised by.
        events: how often each of the launcher's events occurred.
        changed_s: when a rung or a program was last changed; ``rung_since`` when each rung was.
        timeline: who held what, and how far training had come.
        beat: the agent's last heartbeat; ``agent_events`` and ``metrics`` are the rows of its files.
    """

    def __init__(
        self,
        course: Timeline | None = None,
        beat: Heartbeat | None = None,
        agent_events: Sequence[Row] = (),
        metrics: Sequence[Row] = (),
    ) -> None:
        self.sessions: list[Session] = []
        self.gathered: dict[str, Incident] = {}
        self.findings: dict[tuple[str, str, str], Row] = {}
        self.events: Counter[str] = Counter()
        self.changed_s: float | None = None
        self.rung_since: dict[str, float] = {}
        self.timeline, self.beat = course or Timeline(), beat
        self.agent_events, self.metrics = agent_events, metrics
        self._open: dict[str, Incident] = {}
        self._last_s: float | None = None

    def add(self, row: Row) -> None:
        """Take up one of the launcher's events, or a row that only says when it lived; any content is survived."""
        event, now_s = words(row, "event"), moment(row)
        self.events[event] += 1
        if not self.sessions or (event == "run_started" and now_s > self.sessions[-1].from_s):
            self.sessions.append(Session(now_s, now_s))
        if event == "run_started":  # what a launcher that was killed had at hand is never heard of again
            self._open.clear()
            self.findings.clear()
        elif event == "finding":
            self.findings[finding_of(row).key] = row
        elif event == "finding_over":
            self.findings.pop(finding_of(row).key, None)
        elif event in CHANGES:
            self.changed_s = self.rung_since[words(row, "rung")] = now_s
        self._gather(event, row)
        if event == "run_ended":
            for incident in self._open.values():
                incident.over_s = now_s
            self._open.clear()
        self.sessions[-1].until_s = max(self.sessions[-1].until_s, now_s)
        self._last_s = now_s

    def _gather(self, event: str, row: Row) -> None:
        """Add a row to the incident that it names; what is up again is up for all that stand still."""
        name, now_s = words(row, "incident"), moment(row)
        if event in UP:
            for incident in [each for each in self._open.values() if each.stands]:
                self._settle(incident, now_s, UP[event])
        if not name or words(row, "diagnosis") == Cause.OUT_OF_BAND.value:
            return
        if name not in self.gathered:
            self.gathered[name] = Incident(name, [first_of(row, self._last_s)])
        incident = self.gathered[name]
        if event == "run_ended":
            incident.ended_run = True
            return
        self._open[name] = incident
        incident.add(row)
        self._settle(incident, now_s)

    def _settle(self, incident: Incident, now_s: float, back: str = "") -> None:
        incident.settle(now_s, back)
        if incident.over_s is not None:
            self._open.pop(incident.name, None)

    @property
    def incidents(self) -> list[Incident]:
        """Those that mattered."""
        return [each for each in self.gathered.values() if each.matters]

    @property
    def passed(self) -> list[Incident]:
        """Those that passed with nothing to be done."""
        return [each for each in self.gathered.values() if not each.matters]

    @property
    def ran_s(self) -> float:
        """For how long launchers ran, in all."""
        return sum(session.until_s - session.from_s for session in self.sessions)

    @property
    def faults(self) -> Counter[str]:
        """How many incidents were faults, by their gravest cause."""
        return Counter(each.cause for each in self.incidents if each.is_fault)

    @property
    def stood(self) -> list[tuple[float, float]]:
        """When training stood still."""
        return union(span for each in self.incidents for span in each.cost.stood)

    @property
    def collector_restarts(self) -> int:
        """How often the agent started a collector again."""
        return sum(row.get("event") == "collector_restarted" for row in self.agent_events)

    @property
    def last_step(self) -> float | None:
        """The furthest that training came; None where no file says."""
        steps = [step for _, step in self.timeline.steps[-1:]]
        return max([*steps, *([self.beat.step] if self.beat else [])], default=None)

    @property
    def total_steps(self) -> float | None:
        """That there were to be."""
        return self.beat.total_steps if self.beat else None

    @property
    def steps_per_s(self) -> float | None:
        """While it didn't stand, on average."""
        drove_s, steps, last = self.ran_s - spans_s(self.stood), self.timeline.steps, self.last_step
        return None if not steps or last is None or drove_s <= 0 else max(0.0, last - steps[0][1]) / drove_s

    def lost(self, what: str) -> float | None:
        """Return the sum of a figure of :class:`Cost`; None where no incident's is known."""
        known = [value for each in self.incidents if (value := getattr(each.cost, what)) is not None]
        return sum(known) if known else None


def examine(run: RunPaths) -> RunHistory:
    """Return a run's postmortem; without sessions and a timeline where no launcher has ever written an event."""
    events, course = read_lines(run.launcher_events), timeline.read(read_lines(run.launcher_memory))
    history = RunHistory(
        course if events else None, read_heartbeat(run.heartbeat), read_lines(run.agent_events), read_lines(run.metrics)
    )
    # Nothing may happen for hours: a launcher that was killed lived until its last line of either file.
    signs = [{"time": each.time_s} for each in history.timeline.progress]
    for row in heapq.merge(events, signs, key=moment):
        history.add(row)
    end_s = max((session.until_s for session in history.sessions), default=0.0)
    downtime = Downtime(course, history.agent_events, history.metrics, end_s)
    mattered = history.incidents
    nexts_s = [*(each.began_s for each in mattered[1:]), float("inf")]
    for incident, next_s in zip(mattered, nexts_s, strict=False):
        incident.cost = downtime.cost(incident, next_s)
        incident.pool, incident.tightest = _tightest(incident, course)
    return history


def _tightest(incident: Incident, course: Timeline) -> tuple[str, Sample | None]:
    """Return the pool that an incident is about, and who held what of it when it was tightest about the beginning."""
    named = [each.pool for each in incident.found if each.pool in course.pools]
    kinds = {RAN_OUT_OF[each.cause] for each in incident.found if each.cause in RAN_OUT_OF}
    any_pool = incident.cause == Cause.PRESSURE.value and not named and not kinds
    pools = [*named, *(name for name in course.pools if any_pool or name.partition(":")[0] in kinds)]
    samples = {name: course.tightest(name, incident.began_s, BEFORE_S, AFTER_S) for name in pools}
    known = {name: sample for name, sample in samples.items() if sample is not None}
    if not known:
        return "", None
    return min(known.items(), key=lambda each: (each[1].free or 0.0) / (each[1].total or 1.0))
