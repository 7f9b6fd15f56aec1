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
from typing import Any

from carla_launcher.act.launcher_state import LauncherState, plain
from carla_launcher.decide.detectors.causes import Finding
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.files import append_line, write_whole
from carla_run.locks import HeldError, Lock
from carla_run.paths import RunPaths

CHANGES = (
    *(LauncherEvent.RUNG_TAKEN, LauncherEvent.RUNG_ADOPTED, LauncherEvent.RUNG_LEFT),
    *(LauncherEvent.SIMULATOR_RESTART, LauncherEvent.AGENT_RESTART),
)
"""Events after which a restore's hold time begins again."""


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

    @property
    def time_s(self) -> float:
        """Return the wall clock's time, as rows have it."""
        return round(self._now(), 3)

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
        row = {"time": self.time_s, "event": event.value, "cause": cause, **belongs, **numbers}
        with contextlib.suppress(OSError):
            append_line(self._run.launcher_events, json.dumps(row).encode())
        if event in CHANGES:
            rung = {str(numbers["rung"]): row["time"]} if "rung" in numbers else {}
            self.change(changed_s=row["time"], rung_since={**self.state.rung_since, **rung})
        self.save()
        for listener in self._listeners:
            listener(row)

    def memory(self, row: Mapping[str, Any]) -> None:
        """Add a line to the memory's timeline."""
        with contextlib.suppress(OSError):
            append_line(self._run.launcher_memory, json.dumps({"time": self.time_s, **row}).encode())

    def save(self) -> None:
        """Write ``launcher.json`` whole: to a temporary name, to the disk, then renamed."""
        written = replace(self.state, updated=self.time_s)
        with contextlib.suppress(OSError):
            write_whole(self._run.launcher_state, json.dumps(plain(written), indent=1))

    def found(self, finding: Finding) -> None:
        """Add the line of a finding, which has its incident."""
        self.event(
            LauncherEvent.FINDING,
            finding.sentence,
            **_about(finding),
            deficit_mib=round(finding.deficit_mib, 1),
            exhausted_in_s=None if finding.exhausted_in_s is None else round(finding.exhausted_in_s),
            exit_code=finding.exit_code,
            numbers=dict(finding.numbers),
        )

    def over(self, finding: Finding) -> None:
        """Add the line that says that a finding no longer holds."""
        self.event(LauncherEvent.FINDING_OVER, **_about(finding))

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


def _about(finding: Finding) -> dict[str, str]:
    cause, pool, owner = finding.key
    return {"incident": finding.incident, "diagnosis": cause, "pool": pool, "owner": owner}
