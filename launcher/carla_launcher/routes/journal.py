"""The evaluation's journal, ``routes.jsonl``: each row is on the disk before what it announces is done.

A launcher that is killed while it writes leaves a torn last line: that is no row, and the next row begins on a line of
its own.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from carla_launcher.routes.progress import Progress, RouteEvent, progress_of
from carla_run.exits import Exit, ExitError
from carla_run.files import open_to_append, open_to_read
from carla_run.paths import RunPaths
from carla_run.readers import read_lines


class JournalError(ExitError):
    """The journal can't be written, so no result could be kept; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


class RouteJournal:
    """Writes it, and knows what it comes to.

    Attributes:
        progress: what all its rows come to, those before this launcher included.
    """

    def __init__(self, run: RunPaths, listener: Callable[[Mapping[str, Any]], None] = lambda _row: None) -> None:
        """Read what is there.

        Args:
            run: the run that it belongs to.
            listener: gets every row after it is written.
        """
        self._path, self._listener = run.routes_journal, listener
        self.progress: Progress = progress_of(read_lines(self._path))

    def add(self, event: RouteEvent, cause: str = "", **fields: Any) -> None:
        """Add a row, and wait until it is on the disk.

        Raises:
            JournalError: the disk refuses it.
        """
        row = {"time": round(time.time(), 3), "event": event.value, "cause": cause, **fields}
        try:
            before = b"" if self._ends_a_line() else b"\n"
            with open_to_append(self._path) as file:
                file.write(before + json.dumps(row).encode() + b"\n")
                os.fsync(file.fileno())
        except OSError as error:
            code = Exit.OUT_OF_MEMORY if error.errno in (errno.ENOSPC, errno.EDQUOT) else Exit.BAD_CONFIG
            raise JournalError(
                f"{self._path} can't be written ({error.strerror}), so no result could be kept: make room, then start "
                "the same command again.",
                code,
            ) from None
        self.progress = self.progress.with_row(row)
        self._listener(row)

    def _ends_a_line(self) -> bool:
        try:
            with open_to_read(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        except FileNotFoundError:
            return True
