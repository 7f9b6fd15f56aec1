"""The request of a start: the options given now, merged with the run's earlier ones.

Merges key by key, and drops earlier options that other users could have written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from carla_launcher import config
from carla_launcher.act.launcher_state import (
    LauncherState,
    PreviousLauncher,
    UnusableStateError,
    read_previous,
    reason,
    writable_by_others,
)
from carla_launcher.config import LauncherConfig, LauncherConfigError
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.places import DEFAULT_CONFIG
from carla_launcher.resolve import agent_args, commands
from carla_launcher.resolve.choosing import WITHOUT_ADDRESS
from carla_launcher.simulators import NAMED, Elsewhere, NoSimulator
from carla_run import formats
from carla_run.configuration.program_file import ProgramFileError
from carla_run.events import LauncherEvent
from carla_run.exits import Exit
from carla_run.paths import RunPaths, names_preset
from carla_run.readers import items, read_lines

NOT_GIVEN = "not given"


@dataclass(frozen=True)
class RunRequest:
    """The request of a start.

    Attributes:
        options: the options, merged with the earlier ones; the agent's configuration is named.
        limits: the launcher's configuration.
        before: state of the earlier run; None for a new run, or if unknown.
        began: the agent or the command was started in this run before.
        gpu_uuids: UUIDs of the GPUs that simulator and agent used before; empty for none, or if others are named now.
        changed: values before and now, by option or by the agent's key.
        notes: sentences for the user.
    """

    run: RunPaths
    options: RunOptions
    limits: LauncherConfig
    before: LauncherState | None = None
    began: bool = False
    gpu_uuids: tuple[str, str] = ("", "")
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def state_if_refused(self, code: int) -> LauncherState | None:
        """Return the earlier state, whose options stay the run's, if an end without progress refuses changed ones."""
        refused = self.began and self.changed and code in (Exit.BAD_CONFIG, Exit.USAGE)
        return self.before if refused else None


@dataclass(frozen=True)
class PreviousRun(PreviousLauncher):
    """The state and options that the last launcher of a run left.

    Attributes:
        options: the run's options.
    """

    options: RunOptions

    @property
    def withheld(self) -> dict[str, str]:
        """Return the options that aren't reused since other users could have written them, each with a sentence.

        They could run another user's command; so could a launcher's configuration (``simulator.command``).
        """
        saved = self.options
        commands = {
            "on_event": bool(saved.on_event),
            "launcher_config": "launcher_config" in saved.model_fields_set and _is_open(saved.launcher_config),
            "stack": "stack" in saved.model_fields_set,
            "command": bool(saved.command),
            "program": saved.program is not None,
        }
        given = {name: f"--{name.replace('_', '-')}" for name in commands} | {"command": "The command"}
        return {
            name: f"{given[name]} of the earlier start isn't used, since {self.writable_by_others}: "
            f"give it again{' after --' if name == 'command' else ''}."
            for name, runs in commands.items()
            if self.writable_by_others and runs
        }

    @property
    def believed(self) -> RunOptions:
        """Return the run's options without those that aren't reused."""
        withheld = self.withheld
        return RunOptions(**{name: value for name, value in self.options.given().items() if name not in withheld})


def previous_run(run: RunPaths) -> PreviousRun | None:
    """Return the state and options that the last launcher of this run left; None if there was none.

    Raises:
        UnusableStateError: they can't be used.
    """
    if (found := read_previous(run)) is None:
        return None
    try:
        options = RunOptions(**found.state.options)
    except ValidationError as error:
        raise UnusableStateError(f"{run.launcher_state} can't be used: {reason(error, 'options')}") from None
    return PreviousRun(**vars(found), options=options)


def run_request(run: RunPaths, given: RunOptions, resume: bool = False, of_command: bool = False) -> RunRequest:
    """Return the request of a start.

    Args:
        run: the run; an existing one needs ``resume``, unless its launcher was killed.
        given: the options given now.
        resume: the run may be one that has ended.
        of_command: a command is to run, and never the agent.

    Raises:
        RefusedError: it can't be started; nothing is written.
        FormatError: a later version continued the run.
        LauncherConfigError: the launcher's configuration can't be used.
    """
    formats.require_readable(run)
    before, problem = _previous_run(run)
    events = read_lines(run.launcher_events)  # it tells what a launcher.json that can't be used doesn't
    if (before is not None and before.state.evaluation) or _has(events, LauncherEvent.ITEMS):
        raise RefusedError(f"{run.path} is an evaluation by `routes`: choose another --run-name.")
    killed = before is not None and before.killed
    ran_a_command = any(items(row, "command") for row in events) and _has(events, LauncherEvent.AGENT_STARTED)
    ran_a_command |= before is not None and before.state.agent is not None and bool(before.options.command)
    began = run.holds_a_run() or ran_a_command
    if (given.command or of_command) and run.holds_a_run() and not ran_a_command:
        raise RefusedError(f"{run.path} holds a run of the agent: choose another --run-name for the command.")
    if began and not resume and not killed:
        why = f" ({problem})" if problem else ""
        raise RefusedError(
            f"{run.path} already holds a run{why}: add --resume to resume it, or choose another --run-name."
        )
    changed: dict[str, tuple[str, str]] = {}
    if before is not None and (killed or resume):
        options, changed, notes = _resumed(given, before)
    else:
        own = run.config if run.config.is_file() and run.holds_a_run() else None
        options = given.model_copy(update={"config": given.config or own or DEFAULT_CONFIG})
        uses = "" if given.command else f"{options.config} and "
        problem = problem or (f"{run.path} holds no run to resume" if resume and not began else "")
        notes = (f"{problem}; the run uses {uses}the options given now.",) if problem else ()
    if not options.command and (of_command or ran_a_command):
        why = problem or f"{run.path} has no command of an earlier start"
        typed = f"run --resume --run-name {run.path.name} -- python train.py"
        raise RefusedError(f"{why}; give the command after --, as: {typed}")
    path, named = options.config, NAMED.get(options.simulator)
    if not options.command and (path is None or not (path.is_file() or names_preset(path))):
        raise RefusedError(f"{path}: there is no such file; name the agent's YAML file, or a preset, with --config.")
    if named is NoSimulator and not options.command:
        raise RefusedError("--simulator none is for a command that drives none: the agent needs a simulator.")
    if named is Elsewhere and options.simulator_host is None:
        raise RefusedError(WITHOUT_ADDRESS)
    state = None
    if before is not None:  # without what other users could have written: these options may become the run's again
        state = replace(before.state, options=before.believed.model_dump(mode="json", exclude_unset=True))
    cards = ("", "") if state is None or given.gpu is not None else state.gpu_uuids
    limits = _limits_for(config.load(options.launcher_config), options)
    return RunRequest(run, options, limits, state, began, cards, changed, notes)


def _limits_for(limits: LauncherConfig, options: RunOptions) -> LauncherConfig:
    return commands.limits_with(limits, commands.file_of(options)) if options.command else limits


def limits_of(run: RunPaths) -> tuple[LauncherConfig, str]:
    """Return a run's launcher configuration; if it can't be used, the shipped one and the reason."""
    before, problem = _previous_run(run)
    if before is None:
        return config.load(), f"{problem}; the launcher's shipped configuration is used." if problem else ""
    why = f"since {before.writable_by_others}" if "launcher_config" in before.withheld else ""
    try:
        limits = _limits_for(config.load(before.believed.launcher_config), before.believed)
    except (LauncherConfigError, ProgramFileError) as error:
        limits, why = config.load(), str(error).rstrip(".")
    note = f"The run's --launcher-config isn't used, {why}: give it again, else the shipped one is used." if why else ""
    return limits, note


def _has(events: Sequence[Mapping[str, Any]], event: LauncherEvent) -> bool:
    return any(row.get("event") == event for row in events)


def _previous_run(run: RunPaths) -> tuple[PreviousRun | None, str]:
    """Return what the run's last launcher left, and why it can't be used, a clause."""
    try:
        return previous_run(run), ""
    except UnusableStateError as error:
        return None, str(error)


def _resumed(asked: RunOptions, before: PreviousRun) -> tuple[RunOptions, dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return the merged options, the changes, and sentences for the user."""
    given_now = asked.given()
    withheld = {name: why for name, why in before.withheld.items() if name not in given_now}
    if lost := [why for name, why in withheld.items() if name in ("command", "program")]:
        raise RefusedError(lost[0])  # without it the agent would start there, or the command from its beginning
    kept = {name: value for name, value in before.options.given().items() if name not in withheld}
    merged = _merged(kept, given_now)
    changed = _changed(kept, merged)
    notes = (*withheld.values(), *(f"{name}: {old} → {new}" for name, (old, new) in changed.items()))
    return RunOptions(**merged), changed, notes


def _is_open(path: Path) -> bool:
    """Return whether other users can write the file; False if it is missing."""
    return path.exists() and bool(writable_by_others(path, path.stat()))


def _merged(kept: Mapping[str, Any], given_now: Mapping[str, Any]) -> dict[str, Any]:
    words = agent_args.by_key(given_now.get("agent_args", ()))
    dropped = {name for name, key in agent_args.OWN.items() if key in words}
    if given_now.get("simulator_host", kept.get("simulator_host")) != kept.get("simulator_host"):
        dropped.add("port")  # another host's simulator has another port
    merged = {**{name: value for name, value in kept.items() if name not in dropped}, **given_now}
    if "agent_args" in given_now and not words:  # taken back
        return merged
    again = words.keys() | {key for name, key in agent_args.OWN.items() if name in given_now}
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
