"""Files of JSON lines that a training appends to: its events, ``agent-events.jsonl``, and its metrics.

A disk that refuses a line never stops training: the line is lost, and that is said once on stderr.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from carla_run.events import Decisive, log_by
from carla_run.records import plain


class JsonLines:
    """A file of JSON objects, one a line, appended to; every line is flushed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complained = False

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one line; NaN and infinity become null, since JSON has none."""
        line = json.dumps(plain(row)) + "\n"
        try:
            self._write(line.encode())
        except OSError as error:
            self._complain(error)

    def _write(self, line: bytes) -> None:
        """Write the line in one call, or nothing: a filling disk takes a part, which would spoil the next line too.

        So would one that a crash of the machine left unfinished: it is ended first.
        """
        with self._path.open("a+b", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if before and os.pread(file.fileno(), 1, before - 1) != b"\n":
                line = b"\n" + line
            if file.write(line) < len(line):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            print(f"{self._path}: lines are being lost ({error.strerror}); the work goes on.", file=sys.stderr)
        self._complained = True


class EventLog:
    """Why things happened: time, event, cause, and the numbers that decided."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._lines = JsonLines(path)
        self._clock = clock

    def append(self, event: str, cause: str = "", **numbers: Any) -> None:
        """Add one event. ``event`` is an ``AgentEvent``'s word, ``cause`` a few words for a person."""
        self._lines.append({"time": round(self._clock(), 3), "event": event, "cause": cause, **numbers})

    def add(self, event: Decisive) -> None:
        """Add one event that the launcher decides by."""
        log_by(self.append, event)
