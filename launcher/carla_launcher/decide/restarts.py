"""Budgets: how often something that failed is started again, and how long is waited before it."""

from __future__ import annotations

from dataclasses import dataclass

from carla_launcher.config import LeakRestarts, Restarts


def failures_in_a_row(before: int, well_for_s: float, limits: Restarts | LeakRestarts) -> int:
    """Return the count with a new failure, or leak, which followed ``well_for_s`` of health."""
    return 1 if well_for_s >= limits.stable_after_s else before + 1


def delay_s(in_a_row: int, limits: Restarts, draw: float) -> float | None:
    """Return how long to wait before the next start; None if the budget is spent.

    Args:
        in_a_row: failures without a stable time between them, the newest included.
        limits: budget and delays.
        draw: a random number in [-1, 1] that spreads the delay.
    """
    if in_a_row > limits.budget:
        return None
    doubled_s: float = limits.first_delay_s * 2 ** min(in_a_row - 1, 60)
    return min(doubled_s, limits.longest_delay_s) * (1 + limits.jitter * draw)


@dataclass
class Tries:
    """Starts of one that others go on without: tried as long as the run lasts, beyond the budget by the longest delay.

    Attributes:
        started_s: when it last was; of the clock that all of it goes by.
        healthy_s: when it was first healthy after that; None if it hasn't been yet.
        due_s: when it is to be started next.
        failures: without a stable time between them.
    """

    started_s: float = 0.0
    healthy_s: float | None = None
    due_s: float = 0.0
    failures: int = 0

    def start(self, now_s: float) -> None:
        """Count a start."""
        self.started_s, self.healthy_s = now_s, None

    def is_late(self, now_s: float, limit_s: float) -> bool:
        """Return whether it has been so long without being healthy once."""
        return self.healthy_s is None and now_s - self.started_s > limit_s

    def fail(self, now_s: float, limits: Restarts, draw: float) -> float:
        """Count a failure; return how long to wait before the next start. Arguments as ``delay_s``'s."""
        well_s = 0.0 if self.healthy_s is None else now_s - self.healthy_s
        self.failures = failures_in_a_row(self.failures, well_s, limits)
        waits_s = delay_s(self.failures, limits, draw)
        waits_s = limits.longest_delay_s if waits_s is None else waits_s
        self.due_s = now_s + waits_s
        return waits_s
