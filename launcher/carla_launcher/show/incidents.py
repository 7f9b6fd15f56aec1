"""An incident: what was found, what was done about it, when training stood still for it, and what that cost.

Pure: takes up rows of ``launcher-events.jsonl``, which say themselves to which incident they belong (``incident``, see
``act/journal``) and when training stood still (``stood_still``, see ``act/standstills``). A launcher that was killed is
an incident, too.
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
"""What else than a cause an incident may begin with: a rung that is left, a launcher that was killed, a request."""
GRAVE = frozenset(
    cause.value for cause in (*policy.FATAL, *policy.SIMULATOR_FAILED, *policy.AGENT_FAILED, Cause.COLLECTOR_HANG)
)
"""Causes that mean: something has ended or hangs, or must be ended."""
GRAVEST_FIRST = [cause.value for cause in policy.ORDER]
ACTIONS = {
    "simulator_restart": "simulator started again",
    "simulator_failed": "a start of the simulator failed",
    "further_simulator_restart": "simulator {simulator} started again, the others went on",
    "agent_restart": "agent started again",
    "agent_killed": "agent killed",
    "simulator_killed": "simulator killed",
    "rung_taken": "gave way: {rung}",
    "rung_adopted": "the agent gave way by itself: {rung}",
    "rung_left": "taken back: {rung}",
    "restore_failed": "the restore before had failed: waits for {hold_s} s next time",
    "draining": "checkpoint, simulator given back",
    "waiting": "{reason}",
    "request_unanswered": "the agent didn't answer `{kind}`",
    "crash_loop": "no restart is left",
    "agent_adopted": "agent found alive, taken over",
    "simulator_adopted": "simulator found alive, taken over",
    "run_started": "launcher started again",
}
"""Events that are something done, in words for people."""
STOOD_STILL = "stood_still"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """One thing that was found wrong.

    Attributes:
        time_s: since 1970, as everywhere here.
        cause: a ``Cause`` value, or one of the words above.
        sentence: for people.
        pool: that was short; empty if none was.
    """

    time_s: float
    cause: str
    sentence: str
    pool: str = ""


@dataclass(frozen=True)
class Action:
    """One thing that was done: the event's name and half a sentence."""

    time_s: float
    event: str
    words: str


@dataclass
class Incident:
    """One trouble, from the first thing found on.

    Attributes:
        name: its id.
        found: the first one first; never empty.
        actions: what was done about it.
        stood: when training stood still for it, from and until.
        goes_on: training moved again after each of these.
        steps_lost: that the run had and had no more; None where no file says.
        updates_repeated: at least so many; None where no file says.
        ended_run: the run ended because of it.
        pool: that was short, by ``history.examine``; empty if none was;
        tightest: who held what of that pool when it was tightest.
    """

    name: str
    found: list[Found]
    actions: list[Action] = field(default_factory=list)
    stood: list[tuple[float, float]] = field(default_factory=list)
    goes_on: bool = True
    steps_lost: float | None = None
    updates_repeated: float | None = None
    ended_run: bool = False
    pool: str = ""
    tightest: Sample | None = None

    @property
    def began_s(self) -> float:
        """When it was noticed."""
        return self.found[0].time_s

    @property
    def cause(self) -> str:
        """The gravest of its causes."""
        known = [each.cause for each in self.found if each.cause in GRAVEST_FIRST]
        return min(known, key=GRAVEST_FIRST.index) if known else self.found[0].cause

    @property
    def sentences(self) -> list[str]:
        """What was found, each thing once, the gravest first."""
        gravest = sorted(self.found, key=lambda each: each.cause != self.cause)
        return list(dict.fromkeys(each.sentence for each in gravest if each.sentence))

    @property
    def stood_s(self) -> float:
        """For how long training stood."""
        return spans_s(self.stood)

    @property
    def back_s(self) -> float | None:
        """When it moved again; None if it never stood, or never moved again."""
        return self.stood[-1][1] if self.stood and self.goes_on and not self.ended_run else None

    @property
    def is_fault(self) -> bool:
        """Return whether something had gone wrong that needed more than a look."""
        return self.matters and self.cause not in (RESTORE, PLANNED)

    @property
    def matters(self) -> bool:
        """Return whether anything failed, was done, or stood still because of it."""
        return bool(self.actions or self.stood or self.ended_run) or self.cause in GRAVE

    def add(self, row: Row) -> None:
        """Take up one row that belongs to it."""
        event = words(row, "event")
        if event == "finding" and (found := _finding(row)) not in self.found:
            self.found.append(found)
        elif event == "run_ended":
            self.ended_run = True
        elif event in ACTIONS:
            self.actions.append(Action(moment(row), event, ACTIONS[event].format_map(_Known(row))))

    def stand(self, from_s: float, until_s: float, *, goes_on: bool, lost: Row) -> None:
        """Take note that training stood still for it, and what was lost by that."""
        self.stood.append((from_s, max(from_s, until_s)))
        self.goes_on = goes_on
        self.steps_lost = _sum(self.steps_lost, lost.get("steps_lost"))
        self.updates_repeated = _sum(self.updates_repeated, lost.get("updates_repeated"))


def moment(row: Row) -> float:
    """Return a row's time, seconds since 1970; 0 where it has none."""
    return number(row.get("time")) or 0.0


def _sum(had: float | None, lost: Any) -> float | None:
    found = number(lost)
    return had if found is None else (had or 0.0) + found


def words(row: Row, key: str) -> str:
    """Return a row's text; empty where it has none."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _finding(row: Row) -> Found:
    return Found(moment(row), *(words(row, key) for key in ("diagnosis", "cause", "pool")))


def first_of(row: Row, last_s: float | None) -> Found:
    """Return what an incident begins with: a finding, else what was done without one.

    Args:
        last_s: when the launchers last gave a sign of life before that; None where there was none.
    """
    event, now_s = words(row, "event"), moment(row)
    if event == "finding":
        return _finding(row)
    if event == "run_started":
        before_s = now_s if last_s is None else min(last_s, now_s)
        told = words(row, "before") or "the launcher ended without a word"
        return Found(before_s, GONE, f"{told}; another one went on")
    if event == "rung_left":
        return Found(now_s, RESTORE, f"takes {words(row, 'rung')} back")
    causes = {
        "rung_taken": Cause.PRESSURE.value,
        "rung_adopted": Cause.AGENT_CUDA_OOM.value if words(row, "kind") == "vram" else Cause.AGENT_HOST_OOM.value,
    }
    return Found(now_s, words(row, "diagnosis") or causes.get(event, PLANNED), words(row, "cause"))


class _Known(dict[str, Any]):
    """A row for ``format_map``; what it lacks is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"
