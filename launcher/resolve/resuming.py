"""A second start of the same run: what it was asked for the first time, and what is given anew.

Owns the order of the two, key by key, and what is not believed of a file that others could write. Pure but for whose
file the launcher's configuration is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.act.journal import Recalled
from launcher.act.ownership import open_to
from launcher.options import Options, Wish, given
from launcher.resolve import agent_args

NOT_GIVEN = "not given"


@dataclass(frozen=True)
class Resumed:
    """What holds at this start.

    Attributes:
        changed: by option, or by the agent's key: before, and now. Of what was given anew alone.
        withheld: sentences about what was saved and isn't believed.
    """

    wish: Wish
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()


def resumed(asked: Wish, before: Recalled) -> Resumed:
    """Return what a run goes on with: as it was asked for, but for what is given now."""
    saved, anew = before.state.options, given(asked)
    withheld = {name: why for name, why in _withheld(saved, before.open_to).items() if name not in anew}
    kept = {name: value for name, value in given(saved).items() if name not in withheld}
    merged = _merged(kept, anew)
    wish = Wish(run=asked.run, resume=asked.resume, **merged)
    return Resumed(wish, _changed(kept, merged), tuple(withheld.values()))


def _withheld(saved: Options, why: str) -> dict[str, str]:
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
