"""What follows from an end: restart the simulator, or end the run, with which code and which sentence.

Pure functions over plain data; the exit codes are DESIGN.md's. Owns no clock, no process, no file.
"""

from __future__ import annotations

from dataclasses import dataclass

from launcher.config import SimulatorLimits
from launcher.exits import Ending, Exit, exit_in_words

KILLED_ON_REQUEST = (128 + 9, 128 + 15)


AGENT_ENDS = {
    0: "the agent finished",
    2: "the agent was called with arguments that it doesn't know",
    65: "the agent refused its configuration",
    69: "the agent found no simulator within its patience",
    71: "the agent ran out of memory",
    75: "the agent stopped on request, its checkpoint is written",
}
"""The codes of the agent's contract; any other is a crash."""

SIMULATOR_REFUSALS = (2, 65, 69)
"""Codes with which a simulator says that starting it again would change nothing."""


@dataclass(frozen=True)
class Restart:
    """The simulator is started again after a delay."""

    delay_s: float


@dataclass(frozen=True)
class Failure:
    """The simulator ended, or didn't get as far as answering and ticking.

    Attributes:
        cause: what happened, half a sentence.
        exit_code: None if it still runs.
        in_a_row: how many failures there were, this one included, without a stable time between them.
        ever_healthy: whether this run has had a healthy simulator.
        last_words: the end of its log.
    """

    cause: str
    exit_code: int | None
    in_a_row: int
    ever_healthy: bool
    last_words: str = ""


def failures_in_a_row(before: int, healthy_for_s: float, limits: SimulatorLimits) -> int:
    """Return the count with a new failure, which followed ``healthy_for_s`` of health."""
    return 1 if healthy_for_s >= limits.restarts.stable_after_s else before + 1


def after_simulator_failure(failure: Failure, limits: SimulatorLimits, draw: float) -> Restart | Ending:
    """Return what to do about it.

    A simulator that never was healthy is misconfigured rather than unlucky: nothing is tried twice. Later it is
    restarted with doubling delays, the agent waits and reconnects by itself.

    Args:
        failure: what happened.
        limits: budget and delays.
        draw: a random number in [-1, 1] that spreads the delay.
    """
    said = f": {failure.last_words}" if failure.last_words else ""
    if not failure.ever_healthy and failure.exit_code in SIMULATOR_REFUSALS:
        return Ending(failure.exit_code, f"the simulator refused to start{said}")
    if not failure.ever_healthy:
        return Ending(Exit.NO_SIMULATOR, f"the simulator {failure.cause}{said}")
    if failure.in_a_row > limits.restarts.budget:
        return Ending(
            Exit.BUDGET_SPENT,
            f"the simulator {failure.cause} and its {limits.restarts.budget} restarts are spent{said}",
        )
    doubled_s = limits.restarts.first_delay_s * 2 ** min(failure.in_a_row - 1, 60)
    return Restart(min(doubled_s, limits.restarts.longest_delay_s) * (1 + limits.restarts.jitter * draw))


def after_agent_exit(code: int, wanted: Ending | None) -> Ending:
    """Return how the run ends once the agent has.

    Args:
        code: its exit code.
        wanted: the ending for which it was asked to stop; None if it ended by itself.
    """
    if wanted is not None and wanted.code != Exit.STOPPED:
        return wanted
    if wanted is not None and code in KILLED_ON_REQUEST:
        return Ending(Exit.STOPPED, f"{wanted.reason}; the agent left no new checkpoint, the last one counts")
    if code in AGENT_ENDS:
        return Ending(code, AGENT_ENDS[code])
    return Ending(code, f"the agent crashed ({exit_in_words(code)})")
