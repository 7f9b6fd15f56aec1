"""The launcher's files of a run: ``launcher.json``, ``launcher-events.jsonl``, ``launcher-memory.jsonl`` and the lock.

Writes these and nothing else; reading them (and the agent's) is ``contract``'s. The only place that changes
``launcher.json``. Part of it are the incidents (``i1``, ``i2``, …): findings, decisions, actions and outcome of one
trouble carry one id, and while one is at hand, its id is in every event.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from carla_launcher.act.launcher_state import LauncherState, plain
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.files import open_to_append, write_whole
from carla_run.locks import HeldError, Lock
from carla_run.paths import RunPaths


class RunInUseError(ExitError):
    """Another launcher holds this run; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def lock(run: RunPaths) -> Lock:
    """Take the right to run ``runs/<name>``, gone with the last process that holds its descriptor.

    Children's shims inherit it: the run of a launcher that was killed stays locked until its agent has gone too.

    Raises:
        RunInUseError: another launcher has it.
        OSError: the directory can't be written.
    """
    try:
        return Lock(run.launcher_lock)
    except HeldError as error:
        raise RunInUseError(
            f"{run.path} is in use by the launcher with process id {error.holder}, or by what it left behind a moment "
            "ago: wait for its end, or choose another --run-name."
        ) from None


class Journal:
    """Writes state and events.

    Attributes:
        state: as it is now; a change is on the disk with the next event, or :meth:`save`.
        unverified: the incident for which the agent was started again, until it is warm; empty for none.

    Args:
        state: as the run begins.
        now: the wall clock.
        listeners: get every event after it is written.
    """

    def __init__(
        self,
        run: RunPaths,
        state: LauncherState,
        now: Callable[[], float],
        listeners: Sequence[Callable[[Mapping[str, Any]], None]] = (),
    ) -> None:
        self._run = run
        self._now = now
        self._listeners = listeners
        self.state = replace(state, started=now())
        self.unverified = state.incident

    def change(self, **changes: Any) -> None:
        """Change the state."""
        self.state = replace(self.state, **changes)

    def event(self, event: LauncherEvent, cause: str = "", incident: str | None = None, **numbers: Any) -> None:
        """Add a line: what happened, why, and the numbers that decided; then save the state that it led to.

        ``incident`` is what it belongs to: by default the one that is being dealt with, "" for none. A disk
        that is full costs the line, never the run.
        """
        about = self.state.incident if incident is None else incident
        belongs = {"incident": about} if about else {}
        row = {"time": round(self._now(), 3), "event": event.value, "cause": cause, **belongs, **numbers}
        with contextlib.suppress(OSError):
            self._append(self._run.launcher_events, row)
        self.save()
        for listener in self._listeners:
            listener(row)

    def memory(self, row: Mapping[str, Any]) -> None:
        """Add a line to the memory's timeline."""
        with contextlib.suppress(OSError):
            self._append(self._run.launcher_memory, {"time": round(self._now(), 3), **row})

    def save(self) -> None:
        """Write ``launcher.json`` whole: to a temporary name, to the disk, then renamed."""
        written = replace(self.state, updated=round(self._now(), 3))
        with contextlib.suppress(OSError):
            write_whole(self._run.launcher_state, json.dumps(plain(written), indent=1))

    # Incidents

    @property
    def under_repair(self) -> str:
        """Return the incident that is being repaired; what fails meanwhile belongs to it. Empty if none is."""
        return self.state.incident or self.unverified

    def open_incident(self) -> str:
        """Return a new id; it is on the disk before anything carries it."""
        self.change(incidents=self.state.incidents + 1)
        self.save()
        return f"i{self.state.incidents}"

    def handle(self, incident: str) -> str:
        """Have all events carry this id from now on; empty for none. Return the one before."""
        before = self.state.incident
        self.change(incident=incident)
        return before

    @staticmethod
    def _append(path: Path, row: Mapping[str, Any]) -> None:
        with open_to_append(path) as file:
            file.write((json.dumps(row) + "\n").encode())
