"""What an incident is: what was found, what was done about it, and when the run stood still for it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.decide import policy
from launcher.decide.detectors.causes import Cause

CLIMB, GONE, PLANNED = "climb", "launcher_gone", "planned"
"""What else than a cause an incident may begin with: a step that is taken back, a launcher that was killed, a wish."""
FAILED = frozenset(cause.value for cause in (*policy.FATAL, *policy.SIMULATOR_FAILED, *policy.AGENT_FAILED))
"""Causes that mean: something has ended, or must be ended."""
HUNG = frozenset({Cause.SIMULATOR_HANG.value, Cause.AGENT_HANG.value, Cause.COLLECTOR_HANG.value})
"""Causes that are noticed only after a while in which nothing went on."""
GRAVEST_FIRST = [cause.value for cause in policy.ORDER]


@dataclass(frozen=True)
class Found:
    """One thing that was found wrong.

    Attributes:
        time_s: since 1970, as everywhere here.
        cause: a ``Cause`` value, or one of the words above.
        sentence: for people.
        pool: that was short; empty if none was.
        owner: who grew, leaked or took; empty if nobody did.
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


@dataclass
class Incident:
    """From the first thing found to training again, or to the end of what was found.

    Attributes:
        found: the first one first; never empty.
        held: keys of findings that still hold.
        over_s: when nothing of it held or was under repair any more; None if the files end before.
        ended_run: the run ended because of it.
    """

    found: list[Found]
    actions: list[Action] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    held: set[tuple[str, str, str]] = field(default_factory=set)
    over_s: float | None = None
    ended_run: bool = False

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
    def is_fault(self) -> bool:
        """Return whether something had gone wrong that needed more than a look."""
        return self.matters and self.cause not in (CLIMB, PLANNED)

    @property
    def matters(self) -> bool:
        """Return whether anything failed, was done, or stood still because of it."""
        return bool(self.actions or self.pauses or self.ended_run) or self.cause in FAILED | HUNG
