"""``launcher.json``: where a run stands, as plain data, and what a later launcher takes from it.

It is believed only as far as other users can't have written it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from carla_launcher.decide.ladder import Taken
from carla_run.files import open_to_read
from carla_run.paths import RunPaths
from carla_run.readers import last_lines, number, object_of

OTHERS_WRITE = 0o022


class UnusableStateError(Exception):
    """``launcher.json`` is there and can't be used; the message is a clause for a person."""


@dataclass(frozen=True)
class ProcessState:
    """A program of the run as ``launcher.json`` shows it."""

    pid: int | None = None
    log: str = ""
    quality: str | None = None


@dataclass(frozen=True)
class Standstill:
    """Training stands still.

    Attributes:
        incidents: that it belongs to; of several, the last one is the one that was dealt with last.
        from_s: when training last moved, seconds since 1970.
        down: what it has waited for since (``simulator``, ``agent``, ``collector``, ``resume``), from and until.
        agent: when the agent that moved last was started, of the launcher's clock; 0 where another one had started it.
        step: that had been reached by then, and ``updates``; None where that is unknown.
    """

    incidents: tuple[str, ...]
    from_s: float
    down: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    agent: float = 0.0
    step: int | None = None
    updates: int | None = None


@dataclass(frozen=True)
class LauncherState:
    """``launcher.json``: where the run stands, and enough for the next launcher to go on after a SIGKILL.

    Only the journal replaces it while a run goes.

    Attributes:
        options: what ``up`` was asked for, and what it chose where that was left open: configuration, runtime,
            simulator, port, as they are saved. A later start goes by them.
        host: where the simulator listens; ``port`` likewise.
        quality: of the simulator without any step; None where it knows none.
        gpu_uuids: of the simulator's card and of the agent's, often the same; empty if they need none.
        taken: steps that last, in the order in which they were taken: the rung on which the run stands.
        leak_restarts: in a row, by program: before it was short of memory.
        hold_s: what a restore waits for; doubles with failed ones.
        simulator_peak_mib: watermark by pool kind and quality; ``plan`` reads it. It is written when the simulator's
            first minutes are past without a leak, or at the run's orderly end, so what is there is valid.
        incidents: how many there were; their ids are ``i1``, ``i2``, …
        incident: the one that is being dealt with, or that ended the run; empty if none is.
        agent_context_mib: what the agent held of the GPU beyond its allocator's memory: its CUDA context; likewise.
        agent_figures_doubted: why no later run shall plan by this agent's figures: it leaked, or grew until memory was
            short; empty if they hold.
        command_peaks_mib: of another command than the agent, the most that it held with each set of values of its
            rungs: ``values`` and ``mib``, by pool kind. A later plan of the same command goes by it.
        planned_bands_mib: the most that the plan has simulator and agent hold, by owner, pool and phase (of the agent:
            warming, updating, evaluating; of the simulator, empty for any).
        findings: that hold: ``incident``, ``cause``, ``sentence``, ``pool``, ``owner`` and ``since``.
        standstill: the one that lasts; None while training goes on, or hasn't begun.
        changed_s: when a rung or a program was last changed, seconds since 1970; ``rung_since`` when each rung was.
        rungs_free_mib: what each step that can be taken would free now, negative where it costs, by the kind of pool
            in whose ladder it stands, its name, and the kind of pool.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

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
    taken: tuple[Taken, ...] = ()
    hold_s: float | None = None
    simulator_failures: int = 0
    simulator_restarts: int = 0
    agent_failures: int = 0
    agent_restarts: int = 0
    leak_restarts: Mapping[str, int] = field(default_factory=dict)
    simulator_peak_mib: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    agent_context_mib: float | None = None
    agent_figures_doubted: str = ""
    command_peaks_mib: tuple[Mapping[str, Any], ...] = ()
    incidents: int = 0
    incident: str = ""
    planned_bands_mib: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    rungs_free_mib: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    findings: tuple[Mapping[str, Any], ...] = ()
    standstill: Standstill | None = None
    changed_s: float | None = None
    rung_since: Mapping[str, float] = field(default_factory=dict)
    exit_code: int | None = None
    reason: str = ""


STATE = TypeAdapter(LauncherState)


@dataclass(frozen=True)
class Recalled:
    """What the last launcher of a run left.

    Attributes:
        state: as the next one begins with it: rung, hold times and watermarks stay; how the last one ended doesn't.
        killed: it wrote no end.
        open_to: which other users can have written the file, a clause; empty if none can.
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
        with open_to_read(run.launcher_state) as file:
            text, saved = file.read().decode(errors="replace"), os.fstat(file.fileno())
        folder = run.path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be read ({error.strerror})") from None
    try:
        state = STATE.validate_python(object_of(text))
    except ValidationError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be used: {reason(error)}") from None
    killed = state.state != "stopped"
    incidents = state.incidents + killed  # that a launcher was killed is an incident: the next one begins with it
    incident = f"i{incidents}" if killed else ""
    # What the last one was at is over: who reads the new pid must not take it for the new launcher's.
    again = replace(state, pid=os.getpid(), state="init", incidents=incidents, incident=incident)
    stood = (state.standstill or _last_sign(run, state, incident)) if killed else None
    fresh = replace(again, exit_code=None, reason="", findings=(), standstill=stood)
    return Recalled(fresh, killed, open_to(run.launcher_state, saved) or open_to(run.path, folder))


def _last_sign(run: RunPaths, state: LauncherState, incident: str) -> Standstill | None:
    """Return the standstill that began when a launcher was killed; None if training hadn't begun.

    Nothing may happen for hours: it lived until its last line of the memory's timeline, too.
    """
    row = object_of(last_lines(run.launcher_memory))
    step, updates = number(row.get("step")), number(row.get("updates"))
    if step is None:
        return None
    last_s = max(state.updated, number(row.get("time")) or 0.0)
    return Standstill((incident,), last_s, {}, 0.0, int(step), None if updates is None else int(updates))


def reason(error: ValidationError, *within: str) -> str:
    """Return what is wrong first, a clause; ``within`` are the keys above."""
    first = error.errors(include_url=False)[0]
    where = ".".join((*within, *map(str, first["loc"])))
    if first["type"] == "missing":
        return f"`{where}` is missing"
    return f"`{where}` is {first['input']!r:.60}; {first['msg'][0].lower()}{first['msg'][1:]}"


def plain(state: LauncherState) -> dict[str, Any]:
    """Return what ``launcher.json`` holds of a state."""
    found: dict[str, Any] = STATE.dump_python(state, mode="json")
    return found


def open_to(path: Path, status: os.stat_result) -> str:
    """Return which other users can have written a file or changed a folder, a clause; empty if none can."""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this"
    if status.st_mode & OTHERS_WRITE:
        return f"others can write {path} (`chmod go-w {path}` ends that)"
    return ""
