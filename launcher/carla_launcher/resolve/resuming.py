"""What a start is asked for, all in all: what is given now over what the run was asked for before.

Owns the order of the two, key by key, and what is not believed of a file that others could write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from carla_launcher import config
from carla_launcher.act.launcher_state import LauncherState, UnusableStateError, open_to, reason, recall
from carla_launcher.config import DEFAULT_CONFIG, LauncherConfig, LauncherConfigError
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve import agent_args, commands
from carla_launcher.simulators import NAMED, Elsewhere
from carla_run import formats
from carla_run.configuration.program_file import ProgramFileError
from carla_run.paths import RunPaths, names_preset

NOT_GIVEN = "not given"


@dataclass(frozen=True)
class Requested:
    """What a start is asked for.

    Attributes:
        options: with what was left open taken from the run that is resumed; the agent's configuration is named.
        limits: the launcher's configuration by which it goes.
        before: where that run stands; None for a new one, or where that is unknown.
        gpu_uuids: of the cards that simulator and agent have had; empty for none, or where others are named now.
        changed: by option, or by the agent's key: before, and now.
        notes: sentences for a person.
    """

    run: RunPaths
    options: RunOptions
    limits: LauncherConfig
    before: LauncherState | None = None
    gpu_uuids: tuple[str, str] = ("", "")
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Before:
    """What the last launcher of a run left.

    Attributes:
        state: where the run stands.
        options: what it was asked for, as it is written there.
        killed: it wrote no end.
        open_to: which other users can have written the file, a clause; empty if none can.
    """

    state: LauncherState
    options: RunOptions
    killed: bool
    open_to: str

    @property
    def withheld(self) -> dict[str, str]:
        """Return what isn't taken from a file that others can write, and why: it might run a command of theirs.

        The launcher's configuration can name one, too (``simulator.command``): it must then be this user's own.
        """
        saved = self.options
        commands = {
            "on_event": bool(saved.on_event),
            "launcher_config": "launcher_config" in saved.model_fields_set and _is_open(saved.launcher_config),
            "stack": "stack" in saved.model_fields_set,
            "command": bool(saved.command),
            "program": saved.program is not None,
        }
        return {
            name: f"--{name.replace('_', '-')} isn't taken up again, for {self.open_to}: give it anew."
            for name, runs in commands.items()
            if self.open_to and runs
        }

    @property
    def believed(self) -> RunOptions:
        """Return what the run was asked for, without what is withheld."""
        withheld = self.withheld
        return RunOptions(**{name: value for name, value in self.options.given().items() if name not in withheld})


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def recalled(run: RunPaths) -> Before | None:
    """Return what the last launcher of this run left; None if there was none.

    Raises:
        UnusableStateError: there was one, and what it left can't be used.
    """
    if (found := recall(run)) is None:
        return None
    try:
        options = RunOptions(**found.state.options)
    except ValidationError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be used: {reason(error, 'options')}") from None
    return Before(found.state, options, found.killed, found.open_to)


def requested(run: RunPaths, given: RunOptions, resume: bool = False) -> Requested:
    """Return what a start is asked for.

    Args:
        run: of a run that is there only one whose launcher was killed goes on without ``resume``.
        given: now.
        resume: the run may be one that has ended.

    Raises:
        RefusedError: it can't be; nothing is written.
        FormatError: a later version continued the run.
        LauncherConfigError: the launcher's configuration can't be used.
    """
    formats.require_readable(run)
    before, problem = _recalled(run)
    killed = before is not None and before.killed
    ran_a_command = before is not None and before.state.agent is not None and bool(before.options.command)
    holds = run.holds_a_run() or ran_a_command
    if holds and not resume and not killed:
        why = f" ({problem})" if problem else ""
        raise RefusedError(
            f"{run.path} already holds a run{why}: add --resume to go on with it, or choose another --run-name."
        )
    if given.command and run.holds_a_run() and not ran_a_command:
        raise RefusedError(f"{run.path} holds a run of the agent: choose another --run-name for the command.")
    changed: dict[str, tuple[str, str]] = {}
    if before is not None and (killed or resume):
        options, changed, notes = _resumed(given, before)
    else:
        own = run.config if run.config.is_file() and run.holds_a_run() else None
        options = given.model_copy(update={"config": given.config or own or DEFAULT_CONFIG})
        notes = (f"{problem}; the run goes by {options.config} and by what is given now.",) if problem else ()
    path, named = options.config, NAMED.get(options.simulator)
    if not options.command and (path is None or not (path.is_file() or names_preset(path))):
        raise RefusedError(f"{path}: there is no such file; name the agent's YAML, or a preset, with --config.")
    if named is Elsewhere and options.simulator_host is None:
        raise RefusedError("--simulator elsewhere doesn't say where: name its machine with --simulator-host.")
    state = None if before is None else before.state
    cards = ("", "") if state is None or given.gpu is not None else state.gpu_uuids
    limits = _limits_for(config.load(options.launcher_config), options)
    return Requested(run, options, limits, state, cards, changed, notes)


def _limits_for(limits: LauncherConfig, options: RunOptions) -> LauncherConfig:
    return commands.limits_with(limits, commands.file_of(options)) if options.command else limits


def limits_of(run: RunPaths) -> tuple[LauncherConfig, str]:
    """Return the launcher's configuration by which a run goes; where that can't be used the shipped one, and why."""
    before, problem = _recalled(run)
    if before is None:
        return config.load(), f"{problem}; the launcher's shipped configuration counts." if problem else ""
    why = f"for {before.open_to}" if "launcher_config" in before.withheld else ""
    try:
        limits = _limits_for(config.load(before.believed.launcher_config), before.believed)
    except (LauncherConfigError, ProgramFileError) as error:
        limits, why = config.load(), str(error).rstrip(".")
    note = (
        f"The run's own --launcher-config isn't taken, {why}: the shipped one counts, or give it again." if why else ""
    )
    return limits, note


def _recalled(run: RunPaths) -> tuple[Before | None, str]:
    """Return what the run's last launcher left, and why that can't be used, a clause."""
    try:
        return recalled(run), ""
    except UnusableStateError as error:
        return None, str(error)


def _resumed(asked: RunOptions, before: Before) -> tuple[RunOptions, dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return what holds now, what of it is changed, and sentences for a person."""
    anew = asked.given()
    withheld = {name: why for name, why in before.withheld.items() if name not in anew}
    kept = {name: value for name, value in before.options.given().items() if name not in withheld}
    merged = _merged(kept, anew)
    changed = _changed(kept, merged)
    notes = (*withheld.values(), *(f"{name}: {old} → {new}" for name, (old, new) in changed.items()))
    return RunOptions(**merged), changed, notes


def _is_open(path: Path) -> bool:
    """Return whether others can write the file; one that is missing is the reader's to name."""
    return path.exists() and bool(open_to(path, path.stat()))


def _merged(kept: Mapping[str, Any], anew: Mapping[str, Any]) -> dict[str, Any]:
    words = agent_args.by_key(anew.get("agent_args", ()))
    dropped = {name for name, key in agent_args.OWN.items() if key in words}
    if anew.get("simulator_host", kept.get("simulator_host")) != kept.get("simulator_host"):
        dropped.add("port")  # another host's simulator listens elsewhere
    merged = {**{name: value for name, value in kept.items() if name not in dropped}, **anew}
    if "agent_args" in anew and not words:  # taken back
        return merged
    again = words.keys() | {key for name, key in agent_args.OWN.items() if name in anew}
    earlier = agent_args.by_key(kept.get("agent_args", ()))
    args = agent_args.joined({**{key: each for key, each in earlier.items() if key not in again}, **words})
    if args or "agent_args" in merged:
        merged["agent_args"] = args
    return merged


def _changed(kept: Mapping[str, Any], merged: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    before, now = _shown(kept), _shown(merged)
    names = [*before, *(name for name in now if name not in before)]
    pairs = {name: (before.get(name, NOT_GIVEN), now.get(name, NOT_GIVEN)) for name in names}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def _shown(options: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: _text(value) for name, value in options.items() if name != "agent_args"}
    words = agent_args.by_key(options.get("agent_args", ()))
    return {**plain, **{key: agent_args.value(each) for key, each in words.items()}}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        value = " ".join(value)
    return NOT_GIVEN if value in (None, "") else str(getattr(value, "value", value))
