"""The agent's program file, and its sizes, from ``python -m carla_td3 footprint --variants`` here or in a container.

Starts nothing else, and allocates nothing on the GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from carla_launcher.observe.pools import PoolKind, estimated
from carla_launcher.resolve import watermarks
from carla_launcher.sizes import Sizes, SizesOf, Values, key_of
from carla_run.configuration import program_file
from carla_run.configuration.program_file import ProgramFile
from carla_run.exits import Exit, ExitError
from carla_run.readers import inner, number, numbers

AGENT = "carla_td3"
HERE = (sys.executable, "-m", AGENT)
"""Command of the agent that is installed with the launcher."""

_POOLS = {PoolKind.VRAM: "device", PoolKind.RAM: "host", PoolKind.DISK: "disk"}


class FootprintError(ExitError):
    """The agent's sizes can't be found out. The message is one sentence for the user (exit code 65)."""

    code = Exit.BAD_CONFIG


@functools.cache
def program() -> ProgramFile:
    """Return the program file of the installed agent.

    Raises:
        ExitError: it can't be used.
    """
    found = importlib.util.find_spec(AGENT)
    if found is None or found.origin is None:
        raise FootprintError(f"The package {AGENT} isn't installed: install the launcher again.")
    return program_file.load(Path(found.origin).with_name("program.yaml"))


def last_line(text: str) -> str:
    """Return the last line that isn't empty."""
    return [line.strip() for line in text.splitlines() if line.strip()][-1]


class Footprint:
    """The sizes of one configuration and its variants, each asked for once.

    Attributes:
        program: the agent's program file.
        measured: None; the agent reports its sizes itself.
    """

    def __init__(
        self,
        config: str,
        prefix: Sequence[str] = HERE,
        settings: Sequence[str] = (),
        limit_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        explain: Callable[[str], str] = last_line,
    ) -> None:
        """Start nothing yet.

        Args:
            config: path of the agent's configuration, as the agent sees it.
            prefix: command to which ``footprint`` and its options are added, such as ``docker compose run --rm
                --no-deps -T agent python -m carla_td3``.
            settings: ``KEY=VALUE`` each, for ``--set``.
            limit_s: time limit for an answer, including a container's start on a busy machine.
            environment: variables added to the launcher's.
            explain: turns the output of a failed command into a sentence.
        """
        given = [part for setting in settings for part in ("--set", setting)]
        self._command = (*prefix, "footprint", "--config", config, *given, "--variants")
        self._limit_s = limit_s
        self._environment = {**os.environ, **(environment or {})}
        self._explain = explain
        self._known: dict[str, Sizes] = {}
        self._config: dict[str, Any] | None = None
        self._pinned: list[str] = []
        self.program = program()
        self.measured = None

    def config(self) -> Values:
        """Return the configuration's values, by dotted key.

        Raises:
            FootprintError: the configuration is wrong, or the agent can't be started.
        """
        if self._config is None:
            self._ask([])
        return self._config or {}

    def pinned(self) -> Sequence[str]:
        """Return the keys whose values an earlier run must share for its watermarks to be valid here.

        Raises:
            FootprintError: as :meth:`config`.
        """
        self.config()
        return self._pinned

    def sizes(self, variants: Sequence[Values]) -> list[Sizes]:
        """Return the sizes of each set of values, with at most one query.

        Raises:
            FootprintError: as :meth:`config`.
        """
        keys = [key_of(values) for values in variants]
        missing = {key: values for key, values in zip(keys, variants, strict=True) if key not in self._known}
        if missing:
            self._ask(list(missing.values()))
        return [self._known[key] for key in keys]

    def sizes_by(self, runs: Path, config: Values) -> SizesOf:
        """Return the sizes by what earlier runs in this folder measured of the same networks, ``config``'s.

        Raises:
            FootprintError: as :meth:`config`.
        """
        with_context = watermarks.with_context(self.sizes, watermarks.agent_context(runs))
        marks = watermarks.agent_marks(runs, config, self.pinned(), self.program)
        return watermarks.corrected(with_context, marks, config, self.program)

    def frees_by(self, sizes_of: SizesOf) -> SizesOf:
        """Return the same: each size is known."""
        return sizes_of

    def notes(self) -> tuple[str, ...]:
        """Return nothing: each size is known."""
        return ()

    def _ask(self, variants: list[Values]) -> None:
        command = (*self._command, json.dumps([dict(values) for values in variants]))
        answer = _answer(command, self._limit_s, self._environment, self._explain)
        kinds = {"config": dict, "pinned": list, "variants": list}
        told = all(isinstance(answer.get(key), kind) for key, kind in kinds.items())
        if not told or len(answer["variants"]) != len(variants):
            raise FootprintError("`agent footprint` gave no sizes: agent and launcher are of different releases.")
        self._config, self._pinned = answer["config"], answer["pinned"]
        for values, row in zip(variants, answer["variants"], strict=True):
            self._known[key_of(values)] = read(values, row)


def _answer(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str], explain: Callable[[str], str]
) -> Mapping[str, Any]:
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=limit_s, env={**environment}
        )
    except OSError as error:
        raise FootprintError(f"{command[0]}: can't be started ({error.strerror}); is it installed?") from None
    except subprocess.TimeoutExpired:
        raise FootprintError(f"`agent footprint` gave no answer within {limit_s:.0f} s; try it by hand.") from None
    found = _object(ended.stdout)  # with exit code 65, too: it doesn't fit as it is, a variant may
    if found is None:
        said = ended.stderr + ended.stdout
        silent = f"`agent footprint` ended with {ended.returncode} and said nothing."
        raise FootprintError(explain(said) if said.strip() else silent)
    return found


def _object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object at the end of a program's output, after messages of a container's start."""
    try:
        found = json.loads(text[max(0, text.find("{")) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read(values: Values, row: Any) -> Sizes:
    """Return one variant's sizes; an incomplete row is a refusal."""
    row = row if isinstance(row, dict) else {}
    if row.get("refusal"):
        return Sizes(values, refusal=str(row["refusal"]), refused_key=str(row.get("refused_key") or ""))
    mib = {kind: number(row.get(f"{pool}_mib")) for kind, pool in _POOLS.items()}
    known = {kind: figure for kind, figure in mib.items() if figure is not None}
    if len(known) < len(mib):
        return Sizes(values, refusal="The agent's footprint gave no figures for it.")
    by_phase = {kind: numbers(inner(row, f"{pool}_by_phase_mib")) for kind, pool in _POOLS.items()}
    context = estimated(number(row.get("context_mib")) or 0.0)
    return Sizes(values, known, context=context, by_phase=by_phase)
