"""Files of JSON lines that a training appends to: its events, ``agent-events.jsonl``, and its metrics.

A disk that refuses a line never stops training: the line is lost, and stderr says so once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from carla_run.events import Decisive, log_by
from carla_run.files import append_line
from carla_run.records import plain


class JsonLines:
    """A file of JSON objects, one per line, that is appended to; every line is flushed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complained = False

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one line; NaN and infinity become null, since JSON has none."""
        try:
            append_line(self._path, json.dumps(plain(row)).encode())
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            print(f"{self._path}: lines are being lost ({error.strerror}); the work continues.", file=sys.stderr)
        self._complained = True


class EventLog:
    """Why things happened: time, event, cause, and the numbers that decided."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._lines = JsonLines(path)
        self._clock = clock

    def append(self, event: str, cause: str = "", **numbers: Any) -> None:
        """Add one event. ``event`` is a name in ``AgentEvent``, ``cause`` a few words for people."""
        self._lines.append({"time": round(self._clock(), 3), "event": event, "cause": cause, **numbers})

    def add(self, event: Decisive) -> None:
        """Add one event that the launcher uses for decisions."""
        log_by(self.append, event)
