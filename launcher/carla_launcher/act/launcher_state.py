"""``launcher.json``: the state of a run as plain data, and what a later launcher takes from it.

Commands in it are used only if no other user could have written the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from carla_launcher.decide.ladder import AppliedRung
from carla_run.events import LauncherEvent
from carla_run.files import MOST_BYTES, open_to_read
from carla_run.paths import RunPaths
from carla_run.readers import last_lines, number, object_of, read_object
from carla_run.sealed import is_damaged, unsealed

OTHERS_WRITE = 0o022


class UnusableStateError(Exception):
    """``launcher.json`` exists but can't be used. The message is a clause for the user."""


@dataclass(frozen=True)
class ProcessState:
    """A program of the run in ``launcher.json``."""

    pid: int | None = None
    log: str = ""
    quality: str | None = None


@dataclass(frozen=True)
class Standstill:
    """A standstill of training.

    Attributes:
        incidents: its incidents, the last one handled at the end.
        from_s: when training last progressed, seconds since 1970.
        down: what training waited for (``simulator``, ``agent``, ``collector``, ``resume``), from when until when.
        agent: start of the agent that progressed last, by the launcher's clock; 0 if another launcher started it.
        step: the step reached before, and ``updates``; None if unknown.
    """

    incidents: tuple[str, ...]
    from_s: float
    down: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    agent: float = 0.0
    step: int | None = None
    updates: int | None = None


@dataclass(frozen=True)
class LauncherState:
    """``launcher.json``: the state of the run, enough for the next launcher to continue after a SIGKILL.

    Only the journal replaces it during a run.

    Attributes:
        options: the options of ``up``, and the values that it chose for open ones: configuration, runtime, simulator.
            Later starts use them.
        host: address on which the simulator listens, with ``port``.
        quality: the simulator's quality without any step; None if it has none.
        gpu_uuids: UUIDs of the simulator's GPU and of the agent's, often the same; empty if they need none.
        taken: lasting steps in the order in which they were taken: the run's position on the ladder.
        leak_restarts: restarts for leaks in a row, by program.
        gpu_losses: how often in a row the agent's container lost the GPU.
        hold_s: hold time before a restore.
        simulator_peak_mib: the simulator's watermark by pool kind and quality, which later plans read. Written after
            its first minutes without a leak, or at the run's orderly end.
        incidents: number of incidents so far; their ids are ``i1``, ``i2``, …
        incident: the incident under repair, or the one that ended the run; empty if there is none.
        agent_context_mib: the agent's CUDA context, which later plans read.
        agent_figures_doubted: why later runs must not plan with this agent's figures, such as a leak; else empty.
        command_peaks_mib: of another command than the agent, the most that it held with each set of values of its
            rungs: ``values``, ``mib`` by pool kind, and ``by_phase``. A later plan of the same command goes by it.
        planned_bands_mib: planned memory of simulator and agent, by owner, pool and phase (the agent's: warming,
            updating, evaluating; the simulator's: empty).
        steps_lost: finished steps that were lost and made again, as far as they are known.
        set_aside: checkpoints that a command couldn't start from, under the names by which they are kept; the last
            ``set_aside_in_a_row`` of them without any progress in between.
        findings: open findings: ``incident``, ``cause``, ``sentence``, ``pool``, ``owner`` and ``since``.
        standstill: the present standstill of training; None if there is none.
        changed_s: time of the last change of a rung or program, seconds since 1970; ``rung_since`` has each rung's.
        rungs_free_mib: what each possible step would free now, negative if it costs, by the pool kind of its ladder,
            the step's name, and pool kind.
        evaluation: the program file of a run of ``routes``; empty for any other run.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", defer_build=True)

    run: str
    options: Mapping[str, Any]
    host: str
    port: int
    quality: str | None = None
    gpu_uuids: tuple[str, str] = ("", "")
    pid: int = field(default_factory=os.getpid)
    started: float = 0.0
    updated: float = 0.0
    state: str = "init"
    simulator: ProcessState | None = None
    agent: ProcessState | None = None
    taken: tuple[AppliedRung, ...] = ()
    hold_s: float | None = None
    simulator_failures: int = 0
    simulator_restarts: int = 0
    agent_failures: int = 0
    agent_restarts: int = 0
    leak_restarts: Mapping[str, int] = field(default_factory=dict)
    gpu_losses: int = 0
    simulator_peak_mib: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    agent_context_mib: float | None = None
    agent_figures_doubted: str = ""
    command_peaks_mib: tuple[Mapping[str, Any], ...] = ()
    incidents: int = 0
    incident: str = ""
    planned_bands_mib: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    rungs_free_mib: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    steps_lost: int = 0
    set_aside: tuple[str, ...] = ()
    set_aside_in_a_row: int = 0
    findings: tuple[Mapping[str, Any], ...] = ()
    standstill: Standstill | None = None
    changed_s: float | None = None
    rung_since: Mapping[str, float] = field(default_factory=dict)
    evaluation: str = ""
    exit_code: int | None = None
    reason: str = ""


STATE = TypeAdapter(LauncherState)


@dataclass(frozen=True)
class PreviousLauncher:
    """The state that the last launcher of a run left.

    Attributes:
        state: the state with which the next launcher starts: steps, hold times and watermarks stay.
        killed: the last launcher was killed, since it recorded no end.
        writable_by_others: which other users could have written the file, a clause; empty if none could.
    """

    state: LauncherState
    killed: bool
    writable_by_others: str


def read_previous(run: RunPaths) -> PreviousLauncher | None:
    """Return the state that the last launcher of this run left; None if there was none.

    Raises:
        UnusableStateError: the state can't be used.
    """
    try:
        with open_to_read(run.launcher_state) as file:
            saved = os.fstat(file.fileno())
            if saved.st_size > MOST_BYTES:
                raise UnusableStateError(f"{run.launcher_state} has {saved.st_size >> 20} MiB, too many to be read")
            text = file.read().decode(errors="replace")
        folder = run.path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be read ({error.strerror})") from None
    said = object_of(text)
    try:
        state = STATE.validate_python(unsealed(said))
    except ValidationError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be used: {reason(error)}") from None
    if is_damaged(said):
        raise UnusableStateError(f"{run.launcher_state} is damaged (its checksum is another)")
    killed = _with_end(run, {"state": state.state})["state"] != "stopped"
    incidents = state.incidents + killed  # a killed launcher is an incident, which the next one handles
    incident = f"i{incidents}" if killed else ""
    # The last launcher's state is over: a reader of the new pid must not take it for the new launcher's.
    again = replace(state, pid=os.getpid(), state="init", incidents=incidents, incident=incident)
    stood = (state.standstill or _last_sign(run, state, incident)) if killed else None
    fresh = replace(again, exit_code=None, reason="", findings=(), standstill=stood)
    return PreviousLauncher(
        fresh, killed, writable_by_others(run.launcher_state, saved) or writable_by_others(run.path, folder)
    )


def read_with_end(run: RunPaths) -> Mapping[str, Any]:
    """Return what ``launcher.json`` has, with the end that only the journal has: a full disk takes a line last."""
    return _with_end(run, read_object(run.launcher_state))


def _with_end(run: RunPaths, launcher: Mapping[str, Any]) -> Mapping[str, Any]:
    row = object_of(last_lines(run.launcher_events))
    if launcher.get("state", "stopped") == "stopped" or row.get("event") != LauncherEvent.RUN_ENDED:
        return launcher
    return {**launcher, "state": "stopped", "exit_code": row.get("exit_code"), "reason": row.get("cause")}


def _last_sign(run: RunPaths, state: LauncherState, incident: str) -> Standstill | None:
    """Return the standstill that began when a launcher was killed; None if training hadn't begun.

    The launcher may record no event for hours, so it lived at least until its last line of ``launcher-memory.jsonl``.
    """
    row = object_of(last_lines(run.launcher_memory))
    step, updates = number(row.get("step")), number(row.get("updates"))
    if step is None:
        return None
    last_s = max(state.updated, number(row.get("time")) or 0.0)
    return Standstill((incident,), last_s, {}, 0.0, int(step), None if updates is None else int(updates))


def reason(error: ValidationError, *within: str) -> str:
    """Return the first error as a clause; ``within`` are the keys above."""
    first = error.errors(include_url=False)[0]
    where = ".".join((*within, *map(str, first["loc"])))
    if first["type"] == "missing":
        return f"`{where}` is missing"
    return f"`{where}` is {first['input']!r:.60}; {first['msg'][0].lower()}{first['msg'][1:]}"


def plain(state: LauncherState) -> dict[str, Any]:
    """Return a state as the object of ``launcher.json``."""
    found: dict[str, Any] = STATE.dump_python(state, mode="json")
    return found


def writable_by_others(path: Path, status: os.stat_result) -> str:
    """Return which other users could have written a file or changed a folder, as a clause; empty if none could."""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to user {status.st_uid}, not to the launcher's user {os.geteuid()}"
    if status.st_mode & OTHERS_WRITE:
        return f"other users can write {path} (`chmod go-w {path}` forbids it)"
    return ""
