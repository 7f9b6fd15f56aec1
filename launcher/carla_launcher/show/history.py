"""The history of a run as data: its launchers, its incidents and their cost, and the memory at each incident.

Read from the run's files, for report, comparison and the live page's charts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from carla_launcher.act.launcher_state import read_with_end
from carla_launcher.act.saved_config import saved_config
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.decide.policy import RAN_OUT
from carla_launcher.decide.route_progress import progress_of
from carla_launcher.observe.tail import Tail
from carla_launcher.show import routes
from carla_launcher.show.damage import left_out, unreadable
from carla_launcher.show.incidents import STOOD_STILL, Incident, first_of, moment, words
from carla_launcher.show.thinning import MOST_ROWS, Thinned
from carla_launcher.show.timeline import AFTER_S, BEFORE_S, Progress, Sample, Spans, Timeline, union
from carla_run.heartbeat import Heartbeat, Phase, read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import inner, number, read_objects

NO_STEPS = {phase.value for phase in Phase} - {Phase.WARMING.value, Phase.COLLECTING.value, Phase.UPDATING.value}
"""Phases of an agent that makes no steps. Words of other programs are not among them."""
RAN_OUT_OF = {cause.value: kind.value for cause, kind in RAN_OUT.items()}

LOST_ELSEWHERE = {"steps_lost": 0, "updates_repeated": 0}
"""The cost of a standstill with several incidents, for all but the last one, which has the real cost."""

Row = Mapping[str, Any]


@dataclass
class Session:
    """The time in which one launcher ran, seconds since 1970."""

    from_s: float
    until_s: float


@dataclass
class RunHistory:
    """The history of a run.

    Attributes:
        launcher: ``launcher.json``.
        timeline: memory by owner and training's progress over time.
        beat: the agent's last heartbeat; ``agent_events`` and ``metrics`` are the rows of its files.
        sessions: the times in which launchers ran, in order.
        gathered: all incidents by their ids, in order of their beginning.
        events: number of each of the launcher's events.
        routes: of an evaluation by ``routes``, what ``show.routes`` tells; empty for any other run.
        damaged: the files of which lines were left out, or that can't be read, a sentence each.
    """

    launcher: Row = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)
    beat: Heartbeat | None = None
    agent_events: Sequence[Row] = ()
    metrics: Sequence[Row] = ()
    sessions: list[Session] = field(default_factory=list)
    gathered: dict[str, Incident] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    routes: Row = field(default_factory=dict)
    damaged: Sequence[str] = ()

    def take_up(self, rows: Iterable[Row]) -> None:
        """Add the launcher's events in order, and rows that only show when it was alive; invalid rows are ignored."""
        last_s: float | None = None
        for row in rows:
            event, now_s, name = words(row, "event"), moment(row), words(row, "incident")
            self.events[event] += 1
            if not self.sessions or (event == "run_started" and now_s > self.sessions[-1].from_s):
                self.sessions.append(Session(now_s, now_s))
                for incident in self.gathered.values():
                    incident.without = ""  # each launcher starts all simulators
            if name and words(row, "diagnosis") != Cause.OUT_OF_BAND.value:
                if name not in self.gathered:
                    self.gathered[name] = Incident(name, [first_of(row, last_s)])
                self.gathered[name].add(row)
            if event == STOOD_STILL:
                self._add_standstill(row, number(row.get("until_s")), goes_on=bool(row.get("goes_on")))
            self.sessions[-1].until_s = max(self.sessions[-1].until_s, now_s)
            last_s = now_s
        self._add_standstill(inner(self.launcher, "standstill"), last_s, goes_on=False)

    def _add_standstill(self, row: Row, until_s: float | None, *, goes_on: bool) -> None:
        """Add a standstill of training to each of its incidents."""
        from_s, names = number(row.get("from_s")), row.get("incidents")
        if from_s is None or until_s is None:
            return
        for name in filter(self.gathered.get, map(str, names if isinstance(names, list) else [])):
            lost = row if name == row.get("incident", name) else LOST_ELSEWHERE
            self.gathered[name].add_standstill(from_s, until_s, goes_on=goes_on, lost=lost)

    @property
    def incidents(self) -> list[Incident]:
        """Incidents that failed something, led to an action or stopped training."""
        return [each for each in self.gathered.values() if each.matters]

    @property
    def without_action(self) -> list[Incident]:
        """Incidents without any action or effect."""
        return [each for each in self.gathered.values() if not each.matters]

    @property
    def records_standstills(self) -> bool:
        """Return whether the files record standstills; those of older launchers don't."""
        acted = any(each.actions for each in self.incidents)
        return not acted or bool(self.events[STOOD_STILL]) or "standstill" in self.launcher

    @property
    def ran_s(self) -> float:
        """Total time in which launchers ran."""
        return sum(session.until_s - session.from_s for session in self.sessions)

    @property
    def faults(self) -> Counter[str]:
        """Number of faults by their gravest cause."""
        return Counter(each.cause for each in self.incidents if each.is_fault)

    @property
    def standstills(self) -> list[tuple[float, float]]:
        """Standstills of training, from and until."""
        return union(span for each in self.incidents for span in each.standstills)

    @property
    def collector_restarts(self) -> int:
        """Number of times that the agent restarted a collector."""
        return sum(row.get("event") == "collector_restarted" for row in self.agent_events)

    @property
    def last_step(self) -> float | None:
        """The last step that training reached; None if unknown."""
        return max([*self.timeline.steps[-1:], *([self.beat.step] if self.beat else [])], default=None)

    @property
    def total_steps(self) -> float | None:
        """The planned number of steps; None if unknown."""
        return self.beat.total_steps if self.beat else None

    @property
    def steps_per_s(self) -> float | None:
        """Average steps per second without standstills, starts and evaluations; None if unknown."""
        drove_s = self.ran_s - self.within_launchers_s(union([*self.standstills, *self._without_steps]))
        steps, last = self.timeline.steps, self.last_step
        return None if not steps or last is None or drove_s <= 0 else max(0.0, last - steps[0]) / drove_s

    @property
    def missed_s(self) -> float:
        """Total time of the standstills in which steps would have been made."""
        idle = self._without_steps
        return sum(until - begun for begun, until in self.standstills if not any(a <= begun < b for a, b in idle))

    def within_launchers_s(self, spans: Spans) -> float:
        """Return the part of the spans in which launchers ran."""
        within = (
            min(until, each.until_s) - max(begun, each.from_s) for each in self.sessions for begun, until in spans
        )
        return sum(max(0.0, length) for length in within)

    @property
    def _without_steps(self) -> list[tuple[float, float]]:
        """The spans in which the agent made no steps though nothing was wrong, such as its starts and evaluations."""
        begins = (Progress(each.from_s, "", None) for each in self.sessions)
        rows = list(heapq.merge(self.timeline.progress, begins, key=lambda row: row.time_s))
        return union(
            (row.time_s, after.time_s) for row, after in pairwise(rows) if row.step is None or row.phase in NO_STEPS
        )


class HistoryReader:
    """Reads a run's history repeatedly, and only what is new in its files; what it keeps is bounded.

    Args:
        run: its files.
        scalars: scalars of ``metrics.jsonl`` to keep; None for all.
        most_rows: lines of memory from which on they are thinned.
    """

    def __init__(self, run: RunPaths, scalars: Collection[str] | None = None, most_rows: int = MOST_ROWS) -> None:
        self._run = run
        self._most_rows = most_rows
        self._scalars = None if scalars is None else {"step", *scalars}
        self._begin()

    def _begin(self) -> None:
        paths = (self._run.launcher_events, self._run.launcher_memory, self._run.agent_events, self._run.metrics)
        self._tails = [Tail(path, from_end=False) for path in paths]
        self._events: list[Row] = []
        self._course = Thinned(self._most_rows)
        self._agent_events: list[Row] = []
        self._metrics: list[Row] = []

    def look(self) -> RunHistory:
        """Return the history up to now; without sessions and timeline if no launcher has written an event."""
        if any(tail.begins_again() for tail in self._tails):
            self._begin()
        events, memory, agent, metrics = self._tails
        self._events += events.parts()
        self._course.add(memory.parts(), [moment(row) for row in self._events])
        self._agent_events += agent.parts()
        self._metrics += map(self._shown, metrics.parts())
        return self._history(self._course.timeline)

    def _shown(self, row: Row) -> Row:
        return row if self._scalars is None else {name: row[name] for name in self._scalars & row.keys()}

    def _history(self, course: Timeline) -> RunHistory:
        history = RunHistory(
            read_with_end(self._run),
            course if self._events else Timeline(),
            read_heartbeat(self._run.heartbeat),
            self._agent_events,
            self._metrics,
            routes=routes.told(self._run, progress_of(self._events)),
            damaged=left_out(self._run, (tail.read for tail in self._tails)),
        )
        # There may be no event for hours: a killed launcher lived until its last line in either file.
        signs = [{"time": each.time_s} for each in history.timeline.progress]
        history.take_up(heapq.merge(self._events, signs, key=moment))
        for incident in history.incidents:
            incident.pool, incident.tightest = _tightest(incident, course)
        return history


def examine(run: RunPaths) -> RunHistory:
    """Return a run's history for a report, which reads configuration and evaluation, too."""
    history = HistoryReader(run).look()
    known = {run.config: saved_config(run), run.evaluation_json: read_objects(run.evaluation_json)}
    history.damaged = [*history.damaged, *unreadable(known)]
    return history


def _tightest(incident: Incident, course: Timeline) -> tuple[str, Sample | None]:
    """Return the pool of an incident, and its sample with the least free memory about the beginning."""
    named = [each.pool for each in incident.found if each.pool in course.pools]
    kinds = {RAN_OUT_OF[each.cause] for each in incident.found if each.cause in RAN_OUT_OF}
    any_pool = incident.cause == Cause.PRESSURE.value and not named and not kinds
    pools = [*named, *(name for name in course.pools if any_pool or name.partition(":")[0] in kinds)]
    samples = {name: course.tightest(name, incident.began_s, BEFORE_S, AFTER_S) for name in pools}
    known = {name: sample for name, sample in samples.items() if sample is not None}
    if not known:
        return "", None
    return min(known.items(), key=lambda each: (each[1].free or 0.0) / (each[1].total or 1.0))
