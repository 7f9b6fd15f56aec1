"""The launcher's files of a run: ``launcher.json``, ``launcher-events.jsonl``, ``launcher-memory.jsonl`` and the lock.

Only the journal writes these files. It also numbers the incidents (``i1``, ``i2``, …): findings, decisions, actions and
outcome of one problem share an id, and every event during its repair has that id.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from carla_launcher.act.launcher_state import LauncherState, plain
from carla_launcher.decide.detectors.causes import Finding
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.files import append_line, write_whole
from carla_run.locks import HeldError, Lock
from carla_run.memory.errors import FULL
from carla_run.paths import RunPaths
from carla_run.sealed import sealed

CHANGES = (
    *(LauncherEvent.RUNG_TAKEN, LauncherEvent.RUNG_ADOPTED, LauncherEvent.RUNG_LEFT),
    *(LauncherEvent.SIMULATOR_RESTART, LauncherEvent.AGENT_RESTART),
)
"""Events after which the hold time of a restore restarts."""


class JournalError(ExitError):
    """What must not be lost can't be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        """Say so in one sentence for the user."""
        full = error.errno in FULL
        super().__init__(
            f"{path} can't be written ({error.strerror}), so no result could be kept: make room, then start the same "
            "command again.",
            Exit.OUT_OF_MEMORY if full else Exit.BAD_CONFIG,
        )


def lock(run: RunPaths) -> Lock:
    """Lock ``runs/<name>`` for this launcher.

    The process shims inherit the descriptor, so the run of a killed launcher stays locked until its agent has ended.

    Raises:
        ExitError: another launcher holds the lock.
        OSError: the directory can't be written.
    """
    try:
        return Lock(run.launcher_lock)
    except HeldError as error:
        raise ExitError(
            f"{run.path} is in use by the launcher with process id {error.holder}, or by programs that it left "
            "running: wait until they end, or choose another --run-name.",
            Exit.BAD_CONFIG,
        ) from None


class Journal:
    """Writes state and events.

    Attributes:
        state: the present state; a change is written with the next event, or by :meth:`save`.
        unverified: the incident for which the agent was restarted, until it is warm; empty if there is none.

    Args:
        state: the state at the start.
        now: the wall clock.
        listeners: called with every event after it is written.
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

    @property
    def time_s(self) -> float:
        """Return the wall clock's time, rounded as in events."""
        return round(self._now(), 3)

    def change(self, **changes: Any) -> None:
        """Change the state."""
        self.state = replace(self.state, **changes)

    def event(
        self, event: LauncherEvent, cause: str = "", incident: str | None = None, *, kept: bool = False, **numbers: Any
    ) -> dict[str, Any]:
        """Append an event with its cause and numbers, save the state, and return the event's row.

        Args:
            event: its name.
            cause: a sentence.
            incident: its incident: by default the one under repair, "" for none.
            kept: wait until the line is on the disk. Otherwise a full disk loses the line and doesn't end the run.
            numbers: its further fields.

        Raises:
            JournalError: ``kept``, and the disk refuses the line.
        """
        about = self.state.incident if incident is None else incident
        belongs = {"incident": about} if about else {}
        row = {"time": self.time_s, "event": event.value, "cause": cause, **belongs, **numbers}
        try:
            append_line(self._run.launcher_events, json.dumps(row).encode(), durable=kept)
        except OSError as error:
            if kept:
                raise JournalError(self._run.launcher_events, error) from None
        if event in CHANGES:
            rung = {str(numbers["rung"]): row["time"]} if "rung" in numbers else {}
            self.change(changed_s=row["time"], rung_since={**self.state.rung_since, **rung})
        self.save()
        for listener in self._listeners:
            listener(row)
        return row

    def memory(self, row: Mapping[str, Any]) -> None:
        """Append a line to ``launcher-memory.jsonl``."""
        with contextlib.suppress(OSError):
            append_line(self._run.launcher_memory, json.dumps({"time": self.time_s, **row}).encode())

    def save(self) -> None:
        """Write ``launcher.json`` atomically."""
        written = replace(self.state, updated=self.time_s)
        with contextlib.suppress(OSError):
            write_whole(self._run.launcher_state, json.dumps(sealed(plain(written)), indent=1))

    def open_finding(self, finding: Finding) -> None:
        """Append the event of a finding."""
        self.event(
            LauncherEvent.FINDING,
            finding.sentence,
            **_about(finding),
            deficit_mib=round(finding.deficit_mib, 1),
            exhausted_in_s=None if finding.exhausted_in_s is None else round(finding.exhausted_in_s),
            exit_code=finding.exit_code,
            numbers=dict(finding.numbers),
        )

    def close_finding(self, finding: Finding) -> None:
        """Append the event that a finding no longer holds."""
        self.event(LauncherEvent.FINDING_OVER, **_about(finding))

    # Incidents

    @property
    def under_repair(self) -> str:
        """Return the incident under repair, to which new failures belong; empty if there is none."""
        return self.state.incident or self.unverified

    def open_incident(self) -> str:
        """Return a new incident's id, after saving it."""
        self.change(incidents=self.state.incidents + 1)
        self.save()
        return f"i{self.state.incidents}"

    def handle(self, incident: str) -> str:
        """Set the incident of all following events, empty for none; return the one before."""
        before = self.state.incident
        self.change(incident=incident)
        return before


def _about(finding: Finding) -> dict[str, Any]:
    cause, pool, owner = finding.key
    return {"incident": finding.incident, "diagnosis": cause, "pool": pool, "owner": owner}
