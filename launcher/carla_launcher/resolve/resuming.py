"""What a start is asked for, all in all: what is given now over what the run was asked for before.

Owns the order of the two, key by key, and what is not believed of a file that others could write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carla_launcher import config
from carla_launcher.act.launcher_state import LauncherState, Recalled, UnusableStateError, open_to, recall
from carla_launcher.config import LauncherConfig, LauncherConfigError
from carla_launcher.options import RefusedError, RunOptions, SimulatorKind
from carla_launcher.resolve import agent_args
from carla_run.paths import RunPaths, names_preset

DEFAULT_CONFIG = Path("lowmem")
NOT_GIVEN = "not given"


@dataclass(frozen=True)
class Requested:
    """What a start is asked for.

    Attributes:
        options: with what was left open taken from the run that is resumed; the agent's configuration is named.
        before: where that run stands; None for a new one, or where that is unknown.
        gpu_uuids: of the cards that simulator and agent have had; empty for none, or where others are named now.
        changed: by option, or by the agent's key: before, and now.
        notes: sentences for a person.
    """

    run: RunPaths
    options: RunOptions
    before: LauncherState | None = None
    gpu_uuids: tuple[str, str] = ("", "")
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def requested(run: RunPaths, given: RunOptions, resume: bool = False) -> Requested:
    """Return what a start is asked for.

    Args:
        run: of a run that is there only one whose launcher was killed goes on without ``resume``.
        given: now.
        resume: the run may be one that has ended.

    Raises:
        RefusedError: it can't be; nothing is written.
    """
    recalled, problem = _recalled(run)
    killed = recalled is not None and recalled.killed
    if run.holds_a_run() and not resume and not killed:
        why = f" ({problem})" if problem else ""
        raise RefusedError(
            f"{run.path} already holds a run{why}: add --resume to go on with it, or choose another --run-name."
        )
    before = None if recalled is None else recalled.state
    if recalled is not None and (killed or resume):
        found = _resumed(run, given, recalled)
    else:
        own = run.config if run.config.is_file() and run.holds_a_run() else None
        path = given.config or own or DEFAULT_CONFIG
        notes = (f"{problem}; the run goes by {path} and by what is given now.",) if problem else ()
        found = Requested(
            run, given.model_copy(update={"config": path}), before, _cards_had(before, given), notes=notes
        )
    path_now, options = found.options.config, found.options
    if path_now is None or not (path_now.is_file() or names_preset(path_now)):
        raise RefusedError(f"{path_now}: there is no such file; name the agent's YAML, or a preset, with --config.")
    if options.simulator is SimulatorKind.ELSEWHERE and options.simulator_host is None:
        raise RefusedError("--simulator elsewhere doesn't say where: name its machine with --simulator-host.")
    return found


def believed(before: Recalled) -> RunOptions:
    """Return what a run was asked for, without what isn't taken from files that others can write."""
    withheld = _withheld(before.state.options, before.open_to)
    return RunOptions(**{name: value for name, value in before.state.options.given().items() if name not in withheld})


def limits_of(run: RunPaths) -> tuple[LauncherConfig, str]:
    """Return the launcher's configuration by which a run goes; where that can't be used the shipped one, and why."""
    recalled, problem = _recalled(run)
    if recalled is None:
        return config.load(), f"{problem}; the launcher's shipped configuration counts." if problem else ""
    path = believed(recalled).launcher_config
    why = f"for {recalled.open_to}" if path != recalled.state.options.launcher_config else ""
    try:
        limits = config.load(path)
    except LauncherConfigError as error:
        limits, why = config.load(), str(error).rstrip(".")
    note = (
        f"The run's own --launcher-config isn't taken, {why}: the shipped one counts, or give it again." if why else ""
    )
    return limits, note


def _recalled(run: RunPaths) -> tuple[Recalled | None, str]:
    """Return what the run's last launcher left, and why that can't be used, a clause."""
    try:
        return recall(run), ""
    except UnusableStateError as error:
        return None, str(error)


def _resumed(run: RunPaths, asked: RunOptions, before: Recalled) -> Requested:
    saved, anew = before.state.options, asked.given()
    withheld = {name: why for name, why in _withheld(saved, before.open_to).items() if name not in anew}
    kept = {name: value for name, value in saved.given().items() if name not in withheld}
    merged = _merged(kept, anew)
    changed = _changed(kept, merged)
    notes = (*withheld.values(), *(f"{name}: {old} → {new}" for name, (old, new) in changed.items()))
    return Requested(run, RunOptions(**merged), before.state, _cards_had(before.state, asked), changed, notes)


def _cards_had(before: LauncherState | None, given: RunOptions) -> tuple[str, str]:
    return ("", "") if before is None or given.gpu is not None else before.gpu_uuids


def _withheld(saved: RunOptions, why: str) -> dict[str, str]:
    """Return what isn't taken from a file that others can write, and why: it might run a command of theirs.

    The launcher's configuration can name one, too (``simulator.command``): it must then be this user's own.
    """
    if not why:
        return {}
    found = {}
    if saved.on_event:
        found["on_event"] = f"--on-event isn't taken up again, for {why}: give it anew."
    if "launcher_config" in saved.model_fields_set and _is_open(saved.launcher_config):
        found["launcher_config"] = f"--launcher-config isn't taken up again, for {why}: give it anew."
    if "stack" in saved.model_fields_set:
        found["stack"] = f"--stack isn't taken up again, for {why}: give it anew."
    return found


def _is_open(path: Path) -> bool:
    """Return whether others can write the file; one that is missing is the reader's to name."""
    return path.exists() and bool(open_to(path, path.stat()))


def _merged(kept: Mapping[str, Any], anew: Mapping[str, Any]) -> dict[str, Any]:
    words = agent_args.by_key(anew.get("agent_args", ()))
    now_at = kept.get("simulator_host")
    superseded = {name for name, key in agent_args.OWN.items() if key in words}
    if anew.get("simulator_host", now_at) != now_at:  # another host's simulator listens elsewhere
        superseded.add("port")
    merged = {**{name: value for name, value in kept.items() if name not in superseded}, **anew}
    if "agent_args" in anew and not words:  # taken back
        return merged
    earlier = agent_args.by_key(kept.get("agent_args", ()))
    for name in anew.keys() & agent_args.OWN.keys():
        earlier.pop(agent_args.OWN[name], None)
    for key in earlier.keys() & words.keys():
        del earlier[key]
    args = agent_args.joined({**earlier, **words})
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
