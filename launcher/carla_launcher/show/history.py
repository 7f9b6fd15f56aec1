"""A run in hindsight, as data: how long, how far, what went wrong, who held what at that moment, what it cost.

Reads the run's files and nothing else. ``report`` and ``markdown`` only write down what stands here.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carla_launcher.decide.policy import RAN_OUT
from carla_launcher.observe.pools import PoolKind
from carla_launcher.show import timeline
from carla_launcher.show.downtime import Cost, Downtime, union
from carla_launcher.show.incidents import Incident, moment, read_incidents, words
from carla_launcher.show.timeline import Sample, Timeline
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import read_lines

BEFORE_S, AFTER_S = 15.0, 1.5
"""About an incident's beginning: where to look for the moment at which memory was tightest."""
RAN_OUT_OF = {cause.value: kind.value for cause, kind in RAN_OUT.items()}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Session:
    """One launcher's time: seconds since 1970; ``ended`` says how, empty if it didn't say."""

    from_s: float
    until_s: float
    ended: str = ""


@dataclass(frozen=True)
class IncidentReport:
    """One incident with what it cost and who held the pool that was short; ``held`` is None where none was."""

    incident: Incident
    cost: Cost
    pool: str = ""
    held: Sample | None = None


@dataclass(frozen=True)
class RunHistory:
    """All that is known of a run.

    Attributes:
        incidents: that mattered, in order.
        passed: when findings came that passed with nothing to be done, and their causes.
        events: how often each launcher event occurred.
        collector_restarts: by the agent itself.
    """

    sessions: tuple[Session, ...]
    incidents: tuple[IncidentReport, ...]
    passed: tuple[tuple[float, str], ...]
    events: Mapping[str, int]
    collector_restarts: int
    first_step: float | None
    last_step: float | None
    total_steps: float | None
    timeline: Timeline

    @property
    def ran_s(self) -> float:
        """For how long launchers ran, in all."""
        return sum(session.until_s - session.from_s for session in self.sessions)

    @property
    def faults(self) -> Counter[str]:
        """How many incidents were faults, by their gravest cause."""
        return Counter(each.incident.cause for each in self.incidents if each.incident.is_fault)

    @property
    def stood(self) -> list[tuple[float, float]]:
        """When training stood still."""
        return union(span for each in self.incidents for span in each.cost.stood)

    @property
    def stood_s(self) -> float:
        """For how long it stood in all."""
        return sum(until_s - from_s for from_s, until_s in self.stood)

    @property
    def steps_per_s(self) -> float | None:
        """While it didn't stand, on average."""
        drove_s = self.ran_s - self.stood_s
        if self.first_step is None or self.last_step is None or drove_s <= 0:
            return None
        return max(0.0, self.last_step - self.first_step) / drove_s

    def lost(self, what: str) -> float | None:
        """Return the sum of a figure of :class:`Cost`; None where no incident's is known."""
        known = [value for each in self.incidents if (value := getattr(each.cost, what)) is not None]
        return sum(known) if known else None


def examine(run: RunPaths) -> RunHistory | None:
    """Return a run's postmortem; None where no launcher has ever written an event."""
    events = read_lines(run.launcher_events)
    if not events:
        return None
    rows, agent_events = timeline.read(read_lines(run.launcher_memory)), read_lines(run.agent_events)
    times = [moment(row) for row in events if moment(row)] + [each.time_s for each in rows.progress[-1:]]
    end_s = max(times, default=0.0)
    downtime = Downtime(rows, agent_events, read_lines(run.metrics), end_s)
    # Nothing may happen for hours: a launcher that was killed lived until its last line of either file.
    signs = [{"time": each.time_s, "event": "alive"} for each in rows.progress]
    heard = list(heapq.merge(events, signs, key=moment))
    incidents = read_incidents(heard)
    mattered = [each for each in incidents if each.matters]
    starts = [*(each.began_s for each in mattered[1:]), float("inf")]
    mattering = [
        _report(each, downtime.cost(each, next_s), rows) for each, next_s in zip(mattered, starts, strict=False)
    ]
    beat = read_heartbeat(run.heartbeat)
    steps = [each.step for each in rows.progress if each.step is not None]
    return RunHistory(
        tuple(_sessions(heard, end_s)),
        tuple(mattering),
        tuple((each.began_s, each.cause) for each in incidents if not each.matters),
        Counter(words(row, "event") for row in events),
        sum(row.get("event") == "collector_restarted" for row in agent_events),
        steps[0] if steps else None,
        max([*steps[-1:], *([beat.step] if beat else [])], default=None),
        beat.total_steps if beat else None,
        rows,
    )


def _report(incident: Incident, cost: Cost, rows: Timeline) -> IncidentReport:
    """Return an incident with the tightest moment of the pool that it is about."""
    named = [each.pool for each in incident.found if each.pool in rows.pools]
    kinds = {RAN_OUT_OF[each.cause] for each in incident.found if each.cause in RAN_OUT_OF}
    rungs = [] if named or kinds else [name for name in rows.pools if incident.cause == "pressure"]
    pools = [*named, *(name for name in rows.pools if name.partition(":")[0] in kinds), *rungs]
    samples = {name: rows.tightest(name, incident.began_s, BEFORE_S, AFTER_S) for name in dict.fromkeys(pools)}
    known = {name: sample for name, sample in samples.items() if sample is not None}
    if not known:
        return IncidentReport(incident, cost)
    pool = min(known, key=lambda name: (known[name].free or 0.0) / (known[name].total or 1.0))
    return IncidentReport(incident, cost, pool, known[pool])


def _sessions(events: Sequence[Row], end_s: float) -> Iterable[Session]:
    """Yield each launcher's time; one that began without a word began with its first event."""
    from_s = last_s = moment(events[0])
    ended = ""
    for row in events:
        if words(row, "event") == "run_started" and moment(row) > from_s:
            yield Session(from_s, max(from_s, last_s), ended)
            from_s, ended = moment(row), ""
        last_s = max(last_s, moment(row))
        if words(row, "event") == "run_ended":
            ended = words(row, "cause")
    yield Session(from_s, max(from_s, last_s if ended else end_s), ended)


def kind_of(pool: str) -> str:
    """Return a pool's kind in words: ``VRAM of GPU 0``, ``RAM``, ``RAM of agent``, ``disk``."""
    kind, _, whose = pool.partition(":")
    name = {PoolKind.VRAM.value: "VRAM", PoolKind.RAM.value: "RAM", PoolKind.DISK.value: "Disk"}.get(kind, pool)
    return f"{name} of {'GPU ' if kind == PoolKind.VRAM.value else ''}{whose}" if whose else name
