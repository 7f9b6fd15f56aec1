"""An incident: what was found, what was done about it, when training stood still for it, and what that cost.

Pure: takes up rows of ``launcher-events.jsonl``, which say themselves to which incident they belong (``incident``, see
``act/journal``). A launcher that was killed is an incident, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.show.timeline import Sample, Spans, spans_s
from carla_run.readers import inner, number

RESTORE, GONE, PLANNED = "restore", "launcher_gone", "planned"
"""What else than a cause an incident may begin with: a rung that is left, a launcher that was killed, a request."""
FAILED = frozenset(cause.value for cause in (*policy.FATAL, *policy.SIMULATOR_FAILED, *policy.AGENT_FAILED))
"""Causes that mean: something has ended, or must be ended."""
HUNG = frozenset({Cause.SIMULATOR_HANG.value, Cause.AGENT_HANG.value, Cause.COLLECTOR_HANG.value})
"""Causes that are noticed only after a while in which nothing went on."""
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
DOWN = {
    "simulator_restart": "simulator",
    "simulator_failed": "simulator",
    "agent_restart": "agent",
    "draining": "draining",
    "run_started": "agent",
}
"""Events with which something is taken from training until it is back."""
UP = {"simulator_healthy": "simulator", "verified": "agent"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """One thing that was found wrong.

    Attributes:
        time_s: since 1970, as everywhere here.
        cause: a ``Cause`` value, or one of the words above.
        sentence: for people.
        pool: that was short; empty if none was.
        owner: who grew, leaked or took; empty if none did.
        unanswered_s: for how long nothing had gone on by then.
    """

    time_s: float
    cause: str
    sentence: str
    pool: str = ""
    owner: str = ""
    unanswered_s: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """By what its end is recognised."""
        return self.cause, self.pool, self.owner


@dataclass(frozen=True)
class Action:
    """One thing that was done: the event's name and half a sentence."""

    time_s: float
    event: str
    words: str


@dataclass
class Pause:
    """Training stood still; ``until_s`` is None where it never went on."""

    from_s: float
    until_s: float | None = None


@dataclass(frozen=True)
class Cost:
    """Of one incident.

    Attributes:
        stood: spans in which training stood, seconds since 1970; empty if it went on.
        back_s: when it drove again; None if it never stood, or never drove again.
        steps_lost: that the run had and had no more; None where no file says.
        updates_repeated: at least so many; None where no file says.
    """

    stood: Spans = ()
    back_s: float | None = None
    steps_lost: float | None = None
    updates_repeated: float | None = None

    @property
    def stood_s(self) -> float:
        """For how long training stood."""
        return spans_s(self.stood)


@dataclass
class Incident:
    """From the first thing found to training again, or to the end of what was found.

    Attributes:
        name: its id.
        found: the first one first; never empty.
        held: keys of findings that still hold.
        missing: what training still lacks.
        over_s: when nothing of it held or was under repair any more; None if the files end before.
        ended_run: the run ended because of it.
        cost: what it cost; ``history.examine`` finds that out, and
        pool: that was short; empty if none was;
        tightest: who held what of that pool when it was tightest.
    """

    name: str
    found: list[Found]
    actions: list[Action] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    held: set[tuple[str, str, str]] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    over_s: float | None = None
    ended_run: bool = False
    cost: Cost = Cost()
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
    def unanswered_s(self) -> float:
        """For how long nothing had gone on when it was noticed."""
        return max(each.unanswered_s for each in self.found)

    @property
    def sentences(self) -> list[str]:
        """What was found, each thing once, the gravest first."""
        gravest = sorted(self.found, key=lambda each: each.cause != self.cause)
        return list(dict.fromkeys(each.sentence for each in gravest if each.sentence))

    @property
    def is_fault(self) -> bool:
        """Return whether something had gone wrong that needed more than a look."""
        return self.matters and self.cause not in (RESTORE, PLANNED)

    @property
    def matters(self) -> bool:
        """Return whether anything failed, was done, or stood still because of it."""
        return bool(self.actions or self.pauses or self.ended_run) or self.cause in FAILED | HUNG

    @property
    def stands(self) -> bool:
        """Return whether training stands still for it now."""
        return bool(self.pauses) and self.pauses[-1].until_s is None

    def add(self, row: Row) -> None:
        """Take up one row that belongs to it."""
        event, now_s = words(row, "event"), moment(row)
        if event == "finding":
            found = finding_of(row)
            if found not in self.found:
                self.found.append(found)
            self.held.add(found.key)
        elif event == "finding_over":
            self.held.discard(finding_of(row).key)
        elif event == "agent_adopted" and self.cause == GONE:
            self.pauses, self.missing = [], set()  # the agent had gone on all the while
        if event in ACTIONS:
            self.actions.append(Action(now_s, event, ACTIONS[event].format_map(_Known(row))))
        if event in DOWN:
            self._stand_still(now_s)
        self._count_missing(event, row)

    def _stand_still(self, now_s: float) -> None:
        if not self.stands:
            whole = not self.pauses and self.cause in FAILED | {GONE}
            self.pauses.append(Pause(self.began_s if whole else now_s))

    def _count_missing(self, event: str, row: Row) -> None:
        """Count what training lacks: a program that is started again, or the simulator that a drained agent gave up."""
        if event in DOWN:
            self.missing.add(DOWN[event])
        elif event == "agent_starts" and self.stands:
            self.missing = self.missing - {"draining", "drained"} | {"agent"}
        elif event in ("request_answered", "request_unanswered"):
            kind = words(row, "kind")
            self.missing.discard({"drain": "draining", "resume": "drained"}.get(kind, ""))
            self.missing |= {"drained"} if kind == "drain" and row.get("ok") else set()

    def settle(self, now_s: float, back: str = "") -> None:
        """See whether training goes on, and whether it is over; ``back``: what training has again."""
        self.missing.discard(back)
        if self.stands and not self.missing:
            self.pauses[-1].until_s = now_s
        self.over_s = None if self.held or self.stands else now_s


def moment(row: Row) -> float:
    """Return a row's time, seconds since 1970; 0 where it has none."""
    return number(row.get("time")) or 0.0


def words(row: Row, key: str) -> str:
    """Return a row's text; empty where it has none."""
    value = row.get(key)
    return value if isinstance(value, str) else ""


def finding_of(row: Row) -> Found:
    """Return what an event ``finding`` says."""
    unanswered_s = number(inner(row, "numbers").get("no_tick_for_s")) or 0.0
    cause, sentence, pool, owner = (words(row, key) for key in ("diagnosis", "cause", "pool", "owner"))
    return Found(moment(row), cause, sentence, pool, owner, max(0.0, unanswered_s))


def first_of(row: Row, last_s: float | None) -> Found:
    """Return what an incident begins with: a finding, else what was done without one.

    Args:
        last_s: when the launchers last gave a sign of life before that; None where there was none.
    """
    event, now_s = words(row, "event"), moment(row)
    if event == "finding":
        return finding_of(row)
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
