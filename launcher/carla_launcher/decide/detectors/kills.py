"""Detects which of the kernel's counters of out-of-memory kills rose recently. Pure."""

from __future__ import annotations

from carla_launcher.observe.pools import Reading


class RecentOomKills:
    """Watches the counter of every pool.

    Args:
        recent_s: time for which a rise counts as recent, since an exit code may come later.
    """

    def __init__(self, recent_s: float) -> None:
        self._recent_s = recent_s
        self._counts: dict[str, int] = {}
        self._rose_s: dict[str, float] = {}
        self._now_s = 0.0

    def look(self, time_s: float, reading: Reading) -> None:
        """Record the counters of a moment; a new counter, or one that restarted, hasn't risen."""
        self._now_s = time_s
        for pool in reading.pools:
            if pool.oom_kills > self._counts.get(pool.name, pool.oom_kills):
                self._rose_s[pool.name] = time_s
            self._counts[pool.name] = pool.oom_kills

    def recent(self, program: str) -> str:
        """Return the pool of a program in which the kernel killed recently; empty if in none."""
        for name in (f"ram:{program}", "ram"):
            if self._now_s - self._rose_s.get(name, -float("inf")) <= self._recent_s:
                return name
        return ""
