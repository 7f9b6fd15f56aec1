"""Whether somebody looks at the page; while that is so, the collector is asked for pictures."""

from __future__ import annotations

import contextlib
import time

from carla_run.paths import RunPaths

TOUCH_S = 1.0
LOOKING_S = 3.0


class Viewers:
    """Of one run's page; ``streams`` are those that follow the camera."""

    def __init__(self, run: RunPaths) -> None:
        self.streams = 0
        self._run = run
        self._touched_s = self._looked_s = float("-inf")

    @property
    def looking(self) -> bool:
        """Return whether a page has asked for something in the last seconds."""
        return time.monotonic() - self._looked_s < LOOKING_S

    def looked(self) -> None:
        """Take note that somebody looks; where no agent has made the folder yet, there is nobody to ask."""
        now_s = self._looked_s = time.monotonic()
        if now_s - self._touched_s >= TOUCH_S:
            self._touched_s = now_s
            with contextlib.suppress(OSError):
                self._run.live_wanted.touch()
