"""The time axis of a run's charts, without the times between two launchers, for runs that were resumed days later.

Pure: converts seconds since 1970 to seconds since the start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from carla_launcher.show.history import Session

TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
MAX_TICKS = 12


class RunTime:
    """Converts times to seconds since the start."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._from_s = [session.from_s for session in sessions]
        self._sessions = sessions
        self._before_s = [sum(each.until_s - each.from_s for each in sessions[:n]) for n in range(len(sessions))]
        self.length_s = max(sum(each.until_s - each.from_s for each in sessions), 1e-3)

    def at(self, moment_s: float) -> float:
        """Return how long the run had run at a time; times outside of a launcher's time give its edge."""
        launch = max(0, bisect_right(self._from_s, moment_s) - 1)
        session = self._sessions[launch]
        return self._before_s[launch] + min(max(moment_s - session.from_s, 0.0), session.until_s - session.from_s)

    @property
    def ticks_s(self) -> list[float]:
        """Round times since the start, at most a dozen."""
        days = max(1, round(self.length_s / 86_400 / MAX_TICKS)) * 86_400
        step_s = next((each for each in TICKS_S if self.length_s / each <= MAX_TICKS), days)
        return [float(count * step_s) for count in range(int(self.length_s / step_s) + 1)]

    @property
    def seams_s(self) -> list[float]:
        """Times at which one launcher followed another."""
        return self._before_s[1:]
