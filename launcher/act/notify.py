"""``--on-event CMD``: a person's own command hears of what happens, at night too.

Owns those processes. The command gets the event as one JSON object on its standard input, its name in LAUNCHER_EVENT,
its cause in LAUNCHER_CAUSE and the id of the incident that it belongs to in LAUNCHER_INCIDENT (empty if to none); what
it does and how it ends is its own business and never holds up the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from contract.events import LauncherEvent

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
"""Commands that may run at the same time; what happens beyond is only in the journal."""
LAST_WORDS_S = 5.0


class Notifier:
    """Runs the command for each event; a listener of the journal."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._running: list[subprocess.Popen[bytes]] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Start the command if the event is news."""
        self._running = [process for process in self._running if process.poll() is None]
        if event["event"] not in NEWS or len(self._running) >= AT_ONCE:
            return
        named = {"LAUNCHER_EVENT": "event", "LAUNCHER_CAUSE": "cause", "LAUNCHER_INCIDENT": "incident"}
        variables = {variable: str(event.get(key, "")) for variable, key in named.items()}
        with contextlib.suppress(OSError):
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                env={**os.environ, **variables},
                start_new_session=True,  # Ctrl-C is for the launcher
            )
            assert process.stdin is not None
            with process.stdin, contextlib.suppress(BrokenPipeError):
                process.stdin.write((json.dumps(dict(event)) + "\n").encode())  # far below a pipe's 64 KiB
            self._running.append(process)

    def close(self) -> None:
        """Give the last commands a moment, and leave them then."""
        until_s = time.monotonic() + LAST_WORDS_S
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - time.monotonic()))
