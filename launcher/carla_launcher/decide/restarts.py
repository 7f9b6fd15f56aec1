"""Restart budgets: how often a failed program is restarted, after which delay, and when no restart can mend it."""

from __future__ import annotations

from carla_launcher.config import LeakRestarts, Restarts

SIGNALLED = 128
"""A program that a signal ended has a code above this."""
MOST_IN_VAIN = 3
"""Starts in a row that end the same way before any progress, after which the next one would end so, too."""


def failures_in_a_row(before: int, well_for_s: float, limits: Restarts | LeakRestarts) -> int:
    """Return the number of failures, or leaks, in a row; the newest followed ``up_for_s`` of health."""
    return 1 if well_for_s >= limits.stable_after_s else before + 1


def delay_s(in_a_row: int, limits: Restarts, draw: float) -> float | None:
    """Return the delay before the next start; None if the budget is used up.

    Args:
        in_a_row: number of failures in a row, the newest included.
        limits: budget and delays.
        draw: a random number in [-1, 1] that spreads the delay.
    """
    if in_a_row > limits.budget:
        return None
    doubled_s: float = limits.first_delay_s * 2 ** min(in_a_row - 1, 60)
    return min(doubled_s, limits.longest_delay_s) * (1 + limits.jitter * draw)


class StartsInVain:
    """Counts a program's starts that end the same way, in a row, while the run has made no progress.

    Attributes:
        progressed: the program made progress once: what fails since then may pass.
    """

    def __init__(self) -> None:
        self.progressed = False
        self._code: int | None = None
        self._count = 0

    def ended(self, code: int | None) -> bool:
        """Return whether another start would be in vain; ``code``: None if something else ended the program."""
        # CARLA and its client crash by a signal now and then, whatever the program does.
        code = None if code is None or code > SIGNALLED else code
        self._count = 0 if code is None else self._count + 1 if code == self._code else 1
        self._code = code
        return self._count >= MOST_IN_VAIN and not self.progressed
