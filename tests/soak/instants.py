"""When a sweep injects a fault: pure functions from a number to a victim's moment, delay and death.

Owns the list of moments. A run's life is short and some of its moments take milliseconds, so an instant is not a time
alone: it is a moment to wait for, and a random delay after it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Moment(Enum):
    """Moment to wait for, and the longest random delay after it in seconds."""

    START = ("start", 6.0)
    """The victim's own start: imports, rehearsal, connecting, restoring, and what comes after them."""
    WARMING = ("warming", 0.3)
    SAVING = ("saving", 0.003)
    UPDATING = ("updating", 1.5)
    EVALUATING = ("evaluating", 0.3)
    ENDING = ("ending", 0.3)
    """After the last step: last updates, last evaluation, last checkpoint."""

    def __init__(self, word: str, longest_s: float) -> None:
        self.word = word
        self.longest_s = longest_s


class Victim(Enum):
    """Which process dies."""

    LEARNER = "learner"
    COLLECTOR = "collector"
    SIMULATOR = "simulator"


DEATHS = {
    Victim.LEARNER: (signal.SIGKILL,),
    Victim.SIMULATOR: (signal.SIGKILL,),
    # The last one hangs it: a stopped process doesn't answer, like a client that waits for its own Traffic Manager.
    Victim.COLLECTOR: (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP),
}
CHAIN = 5
"""Instants that one run lives through."""


@dataclass(frozen=True)
class Instant:
    """One fault."""

    victim: Victim
    seed: int
    moment: Moment
    delay_s: float
    death: signal.Signals


def chain(victim: Victim, number: int) -> list[Instant]:
    """Return the instants of one run; each number gives others.

    Every second learner's run is struck before its first step and after its last one; the others in their warm-up.
    """
    rng = np.random.default_rng([list(Victim).index(victim), number])
    middle = [Moment.START, Moment.SAVING, Moment.UPDATING]
    whole = victim is Victim.LEARNER and number % 2 == 1
    if not whole:
        middle.append(Moment.EVALUATING)
    shuffled = [middle[index] for index in rng.permutation(len(middle))]
    moments = [Moment.START, *shuffled, Moment.ENDING] if whole else [Moment.WARMING, *shuffled]
    deaths, order = DEATHS[victim], list(Moment)
    return [
        Instant(
            victim,
            CHAIN * number + place,
            moment,
            round(float(rng.uniform(0, _longest_s(victim, moment))), 4),
            deaths[(number + order.index(moment)) % len(deaths)],
        )
        for place, moment in enumerate(moments)
    ]


def _longest_s(victim: Victim, moment: Moment) -> float:
    # Only the learner imports torch's optimizers, restores and rehearses before it starts a collector.
    return moment.longest_s / (1 if moment is not Moment.START or victim is Victim.LEARNER else 2)
