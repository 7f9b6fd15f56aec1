"""``--on-event CMD``: a person's own command hears of what happens, at night too.

Owns those processes. The command gets the event as one JSON object on its standard input, its name in LAUNCHER_EVENT,
its cause in LAUNCHER_CAUSE and the id of the incident that it belongs to in LAUNCHER_INCIDENT (empty if to none); what
it does and how it ends is its own business and never holds up the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

from carla_run.events import LauncherEvent

NEWS = frozenset(
    {
        LauncherEvent.AGENT_ADOPTED,
        LauncherEvent.AGENT_RESTART,
        LauncherEvent.RESTORE_FAILED,
        LauncherEvent.CRASH_LOOP,
        LauncherEvent.FINDING,
        LauncherEvent.PLANNED_WITHOUT_CUDA,
        LauncherEvent.RUN_ENDED,
        LauncherEvent.RUN_STARTED,
        LauncherEvent.RUNG_ADOPTED,
        LauncherEvent.RUNG_LEFT,
        LauncherEvent.RUNG_TAKEN,
        LauncherEvent.SIMULATOR_FAILED,
        LauncherEvent.SIMULATOR_RESTART,
        LauncherEvent.VERIFIED,
        LauncherEvent.WAITING,
    }
)
"""Events that a person may want to hear of; the rest is bookkeeping."""
AT_ONCE = 8
"""Commands that may run at the same time."""
HUNG_S = 60.0
"""A command that has run for longer is ended when another one needs its place."""
LONGEST = 10_000
"""Bytes of a variable; execve(2) refuses one of 128 KiB. The event on the standard input is always whole."""
LAST_WORDS_S = 5.0


class Notifier:
    """Runs the command for each event; a listener of the journal."""

    def __init__(self, command: str, hung_s: float = HUNG_S, news: Collection[str] = NEWS) -> None:
        self._command, self._hung_s, self._news = command, hung_s, news
        self._running: dict[subprocess.Popen[bytes], float] = {}
        """With the time at which each was started."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Start the command if the event is news; while too many run, it is only in the journal."""
        if event["event"] not in self._news or not self._has_room():
            return
        named = {"LAUNCHER_EVENT": "event", "LAUNCHER_CAUSE": "cause", "LAUNCHER_INCIDENT": "incident"}
        variables = {variable: _variable(event.get(key, "")) for variable, key in named.items()}
        with contextlib.suppress(OSError), _readable(json.dumps(dict(event)) + "\n") as standard_input:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=standard_input,
                env=os.environ | variables,
                start_new_session=True,  # Ctrl-C is for the launcher
            )
            self._running[process] = time.monotonic()

    def close(self) -> None:
        """Give the last commands a moment, and leave them then."""
        until_s = time.monotonic() + LAST_WORDS_S
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - time.monotonic()))

    def _has_room(self) -> bool:
        self._running = {process: began_s for process, began_s in self._running.items() if process.poll() is None}
        if len(self._running) < AT_ONCE:
            return True
        oldest, began_s = next(iter(self._running.items()))
        if time.monotonic() - began_s < self._hung_s:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(oldest.pid, signal.SIGKILL)
        del self._running[oldest]
        oldest.wait()
        return True


def _readable(text: str) -> BinaryIO:
    """Return a file in memory that holds the text: unlike a pipe it takes any length, whether or not it is read."""
    file = os.fdopen(os.memfd_create("event"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


def _variable(value: object) -> str:
    """Return a value as the environment can hold it: a log's line may be in it."""
    return str(value).replace("\0", " ").encode(errors="replace")[:LONGEST].decode(errors="ignore")
