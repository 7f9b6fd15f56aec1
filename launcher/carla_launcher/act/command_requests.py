"""Requests to a command that reads no ``request.json``: for a checkpoint by a signal or a file, if its file says so.

As ``AgentRequests``, which a program that reports is asked by. Waiting for the answer is the supervisor's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carla_launcher.act.agent_requests import AgentRequests
from carla_launcher.observe.command import CommandMonitor, stamp
from carla_run.configuration.program_file import ProgramFile
from carla_run.paths import RunPaths
from carla_run.requests import Answer, Result

CHECKPOINT = "checkpoint"


class CommandRequests(AgentRequests):
    """Requests to the command of one run.

    Args:
        seen: what is seen of it.
        kill: sends a signal to a process.
    """

    def __init__(
        self,
        run: RunPaths,
        file: ProgramFile,
        folder: Path,
        seen: CommandMonitor,
        kill: Callable[[int, int], None] = os.kill,
    ) -> None:
        super().__init__(run)
        self._checkpoint, self._folder, self._seen, self._kill = file.checkpoint, folder, seen, kill
        self._number = 0
        self._before: object = None

    @property
    def tells_how_it_ended(self) -> bool:
        """Whether the program says by its exit code that it was stopped: one that reports does."""
        return self._seen.reports

    def send(self, kind: str, values: Mapping[str, Any] | None = None) -> int:
        """Ask, and return the request's id.

        Raises:
            OSError: it has ended, or a file can't be written.
        """
        if self._seen.reports:
            return super().send(kind, values)
        self._number += 1
        if kind == CHECKPOINT and (asked := self._checkpoint) is not None:
            self._before = stamp(self._folder / asked.shows)
            if asked.signal is not None:
                self._kill(self._seen.pid, signal.Signals[asked.signal])
            elif asked.touch is not None:
                (self._folder / asked.touch).touch()
        return self._number

    def answer(self, number: int) -> Answer | None:
        """Return the answer to a request, None while there is none; what can't be asked is refused at once."""
        if self._seen.reports:
            return super().answer(number)
        if (asked := self._checkpoint) is None:
            return Answer(number, "", Result.REFUSED, "its program file names no way to ask", self._seen.step, 0, None)
        shown = stamp(self._folder / asked.shows)
        if shown is None or shown == self._before:
            return None
        return Answer(number, CHECKPOINT, Result.OK, f"{asked.shows} is new", self._seen.step, 0, asked.shows.name)

    def started_with(self) -> dict[str, Any]:
        """Return nothing: no process of a command outlives its launcher."""
        return {}
