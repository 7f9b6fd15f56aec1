"""``--on-event CMD``: runs the user's command at important events.

The command reads the event as one JSON object from its standard input. LAUNCHER_EVENT has the event's name,
LAUNCHER_CAUSE its cause and LAUNCHER_INCIDENT the id of its incident (empty if it has none). The command's duration and
exit code don't affect the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any, BinaryIO

from carla_run.events import LauncherEvent

NEWS = frozenset(
    {
        LauncherEvent.AGENT_ADOPTED,
        LauncherEvent.AGENT_RESTART,
        LauncherEvent.RESTORE_FAILED,
        LauncherEvent.CRASH_LOOP,
        LauncherEvent.DRIVE_ENDED,
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
"""Events that run the command."""
AT_ONCE = 8
"""Most commands at the same time."""
HUNG_S = 60.0
"""Time after which a command is killed if another one must start."""
MAX_VALUE_CHARACTERS = 10_000
"""Most bytes in a variable, since execve(2) refuses 128 KiB. Standard input always has the whole event."""
LAST_WORDS_S = 5.0


class Notifier:
    """Runs the command at important events; a listener of the journal."""

    def __init__(self, command: str, hung_s: float = HUNG_S) -> None:
        self._command, self._hung_s = command, hung_s
        self._running: dict[subprocess.Popen[bytes], float] = {}
        """Each with its start time."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Start the command if the event is important, unless too many commands run."""
        if event["event"] not in NEWS or not self._has_room():
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
        """Wait a moment for running commands, then leave them."""
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


def notifiers(command: str) -> tuple[Notifier, ...]:
    """Return the listener of a journal that runs a command; none if the command is empty."""
    return (Notifier(command),) if command else ()


def _readable(text: str) -> BinaryIO:
    """Return a file in memory with the text. Unlike a pipe, it holds any length, even if nothing reads it."""
    file = os.fdopen(os.memfd_create("event"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


def _variable(value: object) -> str:
    """Return a value as text for the environment; it may contain a line of a log."""
    return str(value).replace("\0", " ").encode(errors="replace")[:MAX_VALUE_CHARACTERS].decode(errors="ignore")
