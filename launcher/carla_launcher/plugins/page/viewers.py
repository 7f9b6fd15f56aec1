"""Tracks whether a page is open; while one is, the collector is asked for pictures."""

from __future__ import annotations

import contextlib
import time

from carla_run.paths import RunPaths

TOUCH_S = 1.0
LOOKING_S = 3.0


class Viewers:
    """The open pages of one run; ``streams`` is the number of camera streams."""

    def __init__(self, run: RunPaths) -> None:
        self.streams = 0
        self._run = run
        self._touched_s = self._looked_s = float("-inf")

    @property
    def looking(self) -> bool:
        """Return whether a page has sent a request in the last seconds."""
        return time.monotonic() - self._looked_s < LOOKING_S

    def looked(self) -> None:
        """Record a request of a page, and ask the collector for pictures, if its folder exists."""
        now_s = self._looked_s = time.monotonic()
        if now_s - self._touched_s >= TOUCH_S:
            self._touched_s = now_s
            with contextlib.suppress(OSError):
                self._run.live_wanted.touch()
