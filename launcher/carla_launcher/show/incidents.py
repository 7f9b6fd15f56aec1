"""An incident: its findings, the actions, the standstills of training and their cost.

Pure: made from rows of ``launcher-events.jsonl``, which contain their incident (``incident``, see ``act/journal``) and
standstills (``stood_still``, see ``act/standstills``). A killed launcher is an incident, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.show.timeline import Sample, spans_s
from carla_run.readers import number

RESTORE, GONE, PLANNED = "restore", "launcher_gone", "planned"
"""Reasons other than a cause with which an incident may begin: a restore, a killed launcher, a request."""
GRAVE = frozenset(
    cause.value for cause in (*policy.FATAL, *policy.SIMULATOR_FAILED, *policy.AGENT_FAILED, Cause.COLLECTOR_HANG)
)
"""Causes of which a program has ended, hangs or must be ended."""
GRAVEST_FIRST = [cause.value for cause in policy.ORDER]
ACTIONS = {
    "simulator_restart": "simulator restarted",
    "simulator_failed": "a start of the simulator failed",
    "further_simulator_restart": "simulator {simulator} restarted, the others continued",
    "further_simulator_healthy": "simulator {simulator} answers again",
    "further_simulator_stopped": "simulator {simulator} stopped",
    "agent_restart": "agent restarted",
    "agent_killed": "agent killed",
    "checkpoint_set_aside": "checkpoint {checkpoint} set aside: the agent couldn't start from it",
    "simulator_killed": "simulator killed",
    "rung_taken": "degraded: {rung}",
    "rung_adopted": "the agent degraded by itself: {rung}",
    "rung_left": "restored: {rung}",
    "restore_failed": "the last restore failed: the next one waits {hold_s} s",
    "draining": "checkpoint written, simulator released",
    "waiting": "{reason}",
    "request_unanswered": "the agent didn't answer `{kind}`",
    "crash_loop": "no restart is left",
    "agent_adopted": "running agent taken over",
    "simulator_adopted": "running simulator taken over",
    "run_started": "launcher restarted",
    "drive_ended": "{item}, drive {drive} has no result",
}
"""Events that are actions, in words for users."""
STOOD_STILL = "stood_still"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class IncidentFinding:
    """A finding of an incident.

    Attributes:
        time_s: seconds since 1970, as everywhere here.
        cause: a ``Cause`` value, or one of the reasons above.
        sentence: for users.
        pool: name of the pool that was short; empty if none was.
    """

    time_s: float
    cause: str
    sentence: str
    pool: str = ""


@dataclass(frozen=True)
class Action:
    """An action of an incident: the event's name and a clause."""

    time_s: float
    event: str
    words: str


@dataclass
class Incident:
    """One problem, from its first finding to its end.

    Attributes:
        name: its id.
        found: its findings in order; never empty.
        actions: its actions in order.
        standstills: its standstills of training, from and until.
        goes_on: training progressed again after the last standstill.
        steps_lost: finished steps that were lost; None if unknown.
        updates_repeated: least number of repeated updates; None if unknown.
        ended_run: the run ended because of it.
        without: the further simulator without which the run has gone on since; empty if none is missing.
        pool: name of the pool that was short, set by ``history.examine``; empty if none was.
        tightest: sample of that pool with the least free memory.
    """

    name: str
    found: list[IncidentFinding]
    actions: list[Action] = field(default_factory=list)
    standstills: list[tuple[float, float]] = field(default_factory=list)
    goes_on: bool = True
    steps_lost: float | None = None
    updates_repeated: float | None = None
    ended_run: bool = False
    without: str = ""
    pool: str = ""
    tightest: Sample | None = None

    @property
    def began_s(self) -> float:
        """Time of its first finding."""
        return self.found[0].time_s

    @property
    def cause(self) -> str:
        """The gravest of its causes."""
        known = [each.cause for each in self.found if each.cause in GRAVEST_FIRST]
        return min(known, key=GRAVEST_FIRST.index) if known else self.found[0].cause

    @property
    def sentences(self) -> list[str]:
        """Sentences of its findings, each once, the gravest first."""
        gravest = sorted(self.found, key=lambda each: each.cause != self.cause)
        return list(dict.fromkeys(each.sentence for each in gravest if each.sentence))

    @property
    def standstill_s(self) -> float:
        """Total time of its standstills."""
        return spans_s(self.standstills)

    @property
    def back_s(self) -> float | None:
        """Time at which training progressed again; None if it never stood still, or never progressed again."""
        return self.standstills[-1][1] if self.standstills and self.goes_on and not self.ended_run else None

    @property
    def is_fault(self) -> bool:
        """Return whether it counts as a fault."""
        return self.matters and self.cause not in (RESTORE, PLANNED)

    @property
    def matters(self) -> bool:
        """Return whether a program failed, an action was taken, or training stood still."""
        return bool(self.actions or self.standstills or self.ended_run) or self.cause in GRAVE

    def add(self, row: Row) -> None:
        """Add one of its rows."""
        event = words(row, "event")
        if event in ("finding", "finding_over") and words(row, "owner").startswith("simulator "):
            self.without = words(row, "owner") if event == "finding" else ""
        if event == "finding" and (found := _finding(row)) not in self.found:
            self.found.append(found)
        elif event == "run_ended":
            self.ended_run = True
        elif event in ACTIONS:
            self.actions.append(Action(moment(row), event, ACTIONS[event].format_map(_Known(row))))

    def add_standstill(self, from_s: float, until_s: float, *, goes_on: bool, lost: Row) -> None:
        """Add a standstill of training, and its cost."""
        self.standstills.append((from_s, max(from_s, until_s)))
        self.goes_on = goes_on
        self.steps_lost = _sum(self.steps_lost, lost.get("steps_lost"))
        self.updates_repeated = _sum(self.updates_repeated, lost.get("updates_repeated"))


def moment(row: Row) -> float:
    """Return a row's time, seconds since 1970; 0 if it has none."""
    return number(row.get("time")) or 0.0


def _sum(had: float | None, lost: Any) -> float | None:
    found = number(lost)
    return had if found is None else (had or 0.0) + found


def words(row: Row, key: str) -> str:
    """Return a row's text; empty if it has none."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _finding(row: Row) -> IncidentFinding:
    return IncidentFinding(moment(row), *(words(row, key) for key in ("diagnosis", "cause", "pool")))


def first_of(row: Row, last_s: float | None) -> IncidentFinding:
    """Return the finding with which an incident begins, made from its first row.

    Args:
        last_s: time of the launchers' last sign of life before; None if there was none.
    """
    event, now_s = words(row, "event"), moment(row)
    if event == "finding":
        return _finding(row)
    if event == "run_started":
        before_s = now_s if last_s is None else min(last_s, now_s)
        before = words(row, "before") or "the launcher was killed"
        return IncidentFinding(before_s, GONE, f"{before}; another one took over")
    if event == "rung_left":
        return IncidentFinding(now_s, RESTORE, f"restores {words(row, 'rung')}")
    causes = {
        "rung_taken": Cause.PRESSURE.value,
        "rung_adopted": Cause.AGENT_CUDA_OOM.value if words(row, "kind") == "vram" else Cause.AGENT_HOST_OOM.value,
    }
    return IncidentFinding(now_s, words(row, "diagnosis") or causes.get(event, PLANNED), words(row, "cause"))


class _Known(dict[str, Any]):
    """A row for ``format_map``; a missing value is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"
