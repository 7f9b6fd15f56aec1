"""The launcher's memory on disk: ``launcher.json``, ``launcher-events.jsonl`` and the run's lock.

Owns these three files and writes nothing else; reading them (and the agent's) is ``contract``'s.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from contract.exits import Exit, ExitError
from contract.files import write_whole
from contract.locks import HeldError, Lock
from contract.paths import RunPaths
from contract.readers import object_of
from launcher.act.ownership import open_to
from launcher.decide.ladder import Taken
from launcher.options import RunOptions


class RunInUseError(ExitError):
    """Another launcher holds this run; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


class UnusableStateError(Exception):
    """``launcher.json`` is there and can't be used; the message is a clause for a person."""


@dataclass
class ProcessState:
    """A program of the run as ``launcher.json`` shows it."""

    pid: int | None = None
    log: str = ""
    quality: str | None = None


@dataclass
class LauncherState:
    """``launcher.json``: where the run stands, and enough for the next launcher to go on after a SIGKILL.

    Attributes:
        options: what ``up`` was asked for, and what it chose where that was left open: configuration, runtime,
            simulator, port. A later start goes by them.
        host: where the simulator listens; ``port`` likewise.
        quality: of the simulator without any step; None where it knows none.
        gpu_uuid: of the card that simulator and agent share; empty if they need none.
        taken: steps that last, in the order in which they were taken: the rung on which the run stands.
        leak_restarts: in a row, by program: before it was short of memory.
        hold_s: what a restore waits for; doubles with failed ones.
        simulator_peak_mib: watermark by pool kind and quality; ``plan`` reads it.
        incidents: how many there were; their ids are ``i1``, ``i2``, …
        incident: the one that is being dealt with, or that ended the run; empty if none is.
        agent_context_mib: what the agent held of the GPU beyond its allocator's memory: its CUDA context; likewise.
        planned_bands_mib: the most that the plan has simulator and agent hold, by owner, pool and phase (of the agent:
            warming, updating, evaluating; of the simulator, empty for any).
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    run: str
    options: RunOptions
    host: str
    port: int
    quality: str | None = None
    gpu_uuid: str = ""
    pid: int = field(default_factory=os.getpid)
    started: float = 0.0
    updated: float = 0.0
    state: str = "init"
    simulator: ProcessState | None = None
    agent: ProcessState | None = None
    taken: list[Taken] = field(default_factory=list)
    hold_s: float | None = None
    simulator_failures: int = 0
    simulator_restarts: int = 0
    agent_failures: int = 0
    agent_restarts: int = 0
    leak_restarts: dict[str, int] = field(default_factory=dict)
    simulator_peak_mib: dict[str, dict[str, float]] = field(default_factory=dict)
    agent_context_mib: float | None = None
    incidents: int = 0
    incident: str = ""
    planned_bands_mib: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    exit_code: int | None = None
    reason: str = ""


STATE = TypeAdapter(LauncherState)


@dataclass(frozen=True)
class Recalled:
    """What the last launcher of a run left.

    Attributes:
        state: as the next one begins with it: rung, hold times and watermarks stay; how the last one ended doesn't.
        killed: it wrote no end.
        open_to: who else can have written the file, a clause; empty if nobody but this user can.
    """

    state: LauncherState
    killed: bool
    open_to: str


def recall(run: RunPaths) -> Recalled | None:
    """Return what the last launcher of this run left; None if there was none.

    Raises:
        UnusableStateError: there was one, and what it left can't be used.
    """
    try:
        with run.launcher_state.open("rb") as file:
            text, saved = file.read().decode(errors="replace"), os.fstat(file.fileno())
        folder = run.path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be read ({error.strerror})") from None
    try:
        state = STATE.validate_python(object_of(text))
    except ValidationError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be used: {_reason(error)}") from None
    killed = state.state != "stopped"
    incidents = state.incidents + killed  # that a launcher was killed is an incident: the next one begins with it
    incident = f"i{incidents}" if killed else ""
    fresh = replace(state, pid=os.getpid(), exit_code=None, reason="", incidents=incidents, incident=incident)
    return Recalled(fresh, killed, open_to(run.launcher_state, saved) or open_to(run.path, folder))


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"`{where}` is missing"
    return f"`{where}` is {first['input']!r:.60}; {first['msg'][0].lower()}{first['msg'][1:]}"


def plain(state: LauncherState) -> dict[str, Any]:
    """Return what ``launcher.json`` holds of a state: of the options those that were given."""
    found: dict[str, Any] = STATE.dump_python(state, mode="json")
    return {**found, "options": state.options.model_dump(mode="json", exclude_unset=True)}


def lock(run: RunPaths) -> Lock:
    """Take the right to run ``runs/<name>``, gone with the last process that holds its descriptor.

    Children's shims inherit it: the run of a launcher that was killed stays locked until its agent has gone too.

    Raises:
        RunInUseError: somebody else has it.
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
    """Writes state and events; ``now`` is the wall clock, ``listeners`` hear every event after it is written."""

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
        self.state = state
        state.started = now()

    def event(self, event: str, cause: str = "", incident: str | None = None, **numbers: Any) -> None:
        """Add a line: what happened, why, and the numbers that decided; then save the state that it led to.

        ``incident`` is what it belongs to: by default the one that is being dealt with, "" for none. A disk
        that is full costs the line, never the run.
        """
        about = self.state.incident if incident is None else incident
        belongs = {"incident": about} if about else {}
        row = {"time": round(self._now(), 3), "event": event, "cause": cause, **belongs, **numbers}
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
        self.state.updated = round(self._now(), 3)
        with contextlib.suppress(OSError):
            write_whole(self._run.launcher_state, json.dumps(plain(self.state), indent=1))

    @staticmethod
    def _append(path: Path, row: Mapping[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
