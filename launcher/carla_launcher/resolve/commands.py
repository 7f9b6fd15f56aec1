"""A command in the agent's place: what is asked for, checked, and what it takes of memory as far as that is known.

Its sizes are measured: the first run plans with what the program file believes, or with nothing, and each run remembers
the peak with each set of values that it ran with. A rung frees what was measured, and until then what is believed.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carla_launcher.act.command import Command
from carla_launcher.act.container_words import ContainerWords, container_of
from carla_launcher.act.runtime import StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide.ladder import of_program
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, PoolKind, Provenance
from carla_launcher.options import RefusedError, RunOptions, SimulatorKind
from carla_launcher.rungs.rung import Rung, summed
from carla_launcher.sizes import CPU, DEVICE, Sizes, SizesOf, Values, key_of
from carla_run import keys
from carla_run.configuration import program_file
from carla_run.configuration.program_file import FEWER, HALF, ProgramFile
from carla_run.paths import newest_first
from carla_run.readers import inner, items, numbers, read_object

ANY_MIB = float(2**20)
"""A size of which only differences are used. It is larger than any program's memory."""
UNKNOWN_MIB = 1024.0
"""Assumed memory that a rung frees, if neither the program file nor a measured peak tells it."""
ByPhase = Mapping[PoolKind, Mapping[str, float]]
"""MiB by kind of pool and lasting phase."""
PLACES = ("host", "port", "tm_port")


def command_of(options: RunOptions) -> Command | None:
    """Return the command that runs in the agent's place; None for the agent.

    Raises:
        RefusedError: it can't be started, or its program file can't be used with it.
    """
    if not options.command:
        return None
    file = file_of(options)
    command = Command(options.command, file, options.cwd or Path.cwd())
    _refuse_missing(command)
    _refuse_places(command, options)
    for key, setting in file.settings.items():
        if setting.yaml is not None:
            _refuse_yaml(command, key, setting.yaml)
            try:
                command.content(setting.yaml, {setting.key or key: None})
            except OSError as error:
                raise RefusedError(f"{error.filename}: can't be read ({error.strerror}).") from None
            except StartError as error:
                raise RefusedError(str(error)) from None
    return command


def limits_with(limits: LauncherConfig, file: ProgramFile) -> LauncherConfig:
    """Return the launcher's configuration with the times that a program file says of its program."""
    alive, watch = file.alive, limits.watch
    agent = {} if alive is None else {"beat_limit_s": alive.within_s, "warming_limit_s": alive.first_limit_s}
    agent |= {} if file.stop_grace_s is None else {"stop_grace_s": file.stop_grace_s}
    failed = max(1, math.ceil(file.simulator_hangs_after_s / watch.check_every_s))
    return limits.model_copy(
        update={
            "agent": limits.agent.model_copy(update=agent),
            "watch": watch.model_copy(update={"checks_failed": failed}),
        }
    )


def file_of(options: RunOptions) -> ProgramFile:
    """Return the program file of a command, an empty one where none is named.

    Raises:
        ProgramFileError: it can't be used.
    """
    return ProgramFile() if options.program is None else program_file.load(options.program)


def container_mib(command: Command | None) -> dict[OwnerKind, float]:
    """Return the memory limit of the container that a command runs, MiB; empty without one."""
    container = None if command is None else container_of(command.words)
    mib = None if container is None else container.memory_mib
    return {} if mib is None else {OwnerKind.AGENT: mib}


def _refuse_missing(command: Command) -> None:
    if not command.folder.is_dir():
        raise RefusedError(f"{command.folder}: there is no such folder; name the command's with --cwd.")
    starts = (command.words, () if command.file.resume is None else command.file.resume.command)
    for name in {words[0] for words in starts if words}:
        where = command.folder / name if os.sep in name else name
        if shutil.which(where) is None:
            known = "can't be executed" if Path(where).exists() else "isn't there"
            raise RefusedError(f"{name}: the command {known}; expected a program of PATH, or the path of one.")
    for container in filter(None, map(container_of, starts)):
        if container.refusal:
            raise RefusedError(container.refusal)
        _refuse_unseen(command, container)


def _refuse_unseen(command: Command, container: ContainerWords) -> None:
    """Refuse a file that the program writes where only its container has it: it ends with the container."""
    mounts = [(command.folder / each).resolve() for each in container.writable]
    for key, path in _written(command.file):
        place = (command.folder / path).resolve()
        if not any(place.is_relative_to(mount) or mount.is_relative_to(place) for mount in mounts):
            folder = command.folder.resolve()
            raise RefusedError(
                f"{key} is {path}, which the launcher looks for in {folder}, and no writable mount of the container "
                f"is there: add -v {folder}:{folder} -w {folder}."
            )


def _written(file: ProgramFile) -> Iterator[tuple[str, Path]]:
    """Yield the keys and paths of what the program writes and the launcher reads; of a pattern its fixed folder."""
    if file.resume is not None and file.resume.checkpoint:
        pattern = Path(file.resume.checkpoint).expanduser()
        fixed = itertools.takewhile(lambda part: glob.escape(part) == part, pattern.parts)
        yield "resume.checkpoint", Path(*fixed)
    values = file.model_dump()
    for key in ("done.file", "alive.file", "alive.folder", "checkpoint.shows"):
        if (path := keys.at(values, key)) is not None:
            yield key, path


def _refuse_places(command: Command, options: RunOptions) -> None:
    resume = command.file.resume
    words = command.words if resume is None else (*command.words, *resume.words, *resume.command)
    named = [f"{{{name}}}" for name in PLACES if any(f"{{{name}}}" in word for word in words)]
    if named and options.simulator is SimulatorKind.NONE:
        raise RefusedError(
            f"The command, or its resume, names {', '.join(named)}, and --simulator none has none: leave either out."
        )


def _refuse_yaml(command: Command, key: str, path: Path) -> None:
    if not (command.folder / path).is_file():
        raise RefusedError(f"settings.{key}.yaml is {path}, which isn't in {command.folder}; name the program's file.")
    resumes = () if command.file.resume is None else command.file.resume.command
    for what, words in (("the command", command.words), ("resume.command", resumes or command.words)):
        if all(command.option_of(word, path) is None for word in words):
            raise RefusedError(f"settings.{key}.yaml is {path}, and no word of {what} names it: name it there.")


@dataclass(frozen=True)
class _Peak:
    """What was measured with one set of values: the peak by pool and phase, MiB."""

    values: Values
    mib: ByPhase
    run: str = ""


class CommandSizes:
    """Memory of a command with the values of its rungs.

    Attributes:
        program: the program file. The sizes contain what its rungs are expected to free.
    """

    def __init__(self, command: Command) -> None:
        self._command, self._file = command, command.file
        self.program = command.file.model_copy(
            update={"rungs": tuple(each.model_copy(update={"frees_mib": {}}) for each in command.file.rungs)}
        )
        self._base: Values = {}
        self._peaks: dict[str, _Peak] = {}

    def config(self) -> Values:
        """Return what the keys of its rungs are without any.

        Raises:
            RefusedError: a rung takes less of something that nothing gives.
        """
        found: dict[str, Any] = {}
        for rung in self._file.rungs:
            for key, wanted in rung.values.items():
                value = self._command.value(key)
                if value is None and isinstance(wanted, list) and wanted:
                    value = wanted[0]
                if value is None and wanted in (HALF, FEWER):
                    raise RefusedError(
                        f"Rung {rung.name} has `{key}: {wanted}`, and nothing says what {key} is: give it in the "
                        f"command, or as `settings.{key}.value`."
                    )
                found[key] = value
        return {**found, DEVICE: "auto"}

    def sizes_by(self, runs: Path, config: Values) -> SizesOf:
        """Return its sizes by what runs in this folder measured with the same command."""
        self._base = config
        for run in newest_first(runs):
            state = read_object(run.launcher_state)
            if items(inner(state, "options"), "command") == [*self._command.words]:
                for row in items(state, "command_peaks_mib"):
                    self._remember(row, run.path.name)
        return self._sizes

    def frees_by(self, sizes_of: SizesOf) -> SizesOf:  # noqa: ARG002 - the agent's go by it
        """Return sizes of which only the differences count: what a rung frees is believed where no peak is known."""

        def differences(variants: Sequence[Values]) -> list[Sizes]:
            return [Sizes(each, {kind: ANY_MIB - mib for kind, mib in self._freed(each).items()}) for each in variants]

        return differences

    def notes(self) -> tuple[str, ...]:
        """Return what isn't known of it."""
        without_card = {PoolKind.VRAM} if self._base.get(DEVICE) == CPU else set()
        if not self._sizes([{}])[0].unknown - without_card:
            return ()
        return ("what the command takes of memory isn't known yet: the run measures it",)

    def measured(self, values: Values, phase: str, mib: Mapping[PoolKind, float]) -> None:
        """Take note of a peak with these values in a phase."""
        full = {**self._base, **values}
        known = self._peaks.get(key_of(full), _Peak(full, {})).mib
        fresh = {kind: {phase: each} for kind, each in mib.items()}
        self._peaks[key_of(full)] = _Peak(full, _over(known, fresh))

    def _remember(self, row: Any, run: str) -> None:
        values = row.get("values") if isinstance(row, dict) else None
        if not isinstance(values, dict):
            return
        by_phase = {kind: numbers(inner(inner(row, "by_phase"), kind.value)) for kind in PoolKind}
        known = {kind: phases for kind, phases in by_phase.items() if phases}
        self._peaks.setdefault(key_of(values), _Peak(values, known, run))

    def _sizes(self, variants: Sequence[Values]) -> list[Sizes]:
        return [self._size(each) for each in variants]

    def _size(self, values: Values) -> Sizes:
        """Return the sizes with values: each phase as measured, else as believed less what the values free."""
        full = {**self._base, **values}
        if full.get(DEVICE) != self._base.get(DEVICE) and not any(DEVICE in rung.values for rung in self._file.rungs):
            return Sizes(values, refusal="Its program file has no rung that sets device.")
        peak, freed = self._peaks.get(key_of(full)), self._freed(values)
        believed = {
            kind: {phase: max(0.0, round(mib - freed.get(kind, 0.0), 1)) for phase, mib in phases.items()}
            for kind, phases in self._base_mib().items()
        }
        found: ByPhase = {} if peak is None else peak.mib
        phases = _over(believed, found)
        mib = {kind: max(each.values()) for kind, each in phases.items()}
        how = {kind: Provenance.MEASURED for kind, each in found.items() if max(each.values()) == mib[kind]}
        unknown = frozenset(PROCESS_POOLS) - mib.keys()
        return Sizes(values, mib, how, by_phase=phases, unknown=unknown, run="" if peak is None else peak.run)

    def _base_mib(self) -> ByPhase:
        """Return the peak without any rung by phase, as far as it is known."""
        believed = {PoolKind(kind): phases for kind, phases in self._file.estimates_mib.items()}
        measured = self._peaks.get(key_of(self._base))
        return believed if measured is None else _over(believed, measured.mib)

    def _freed(self, values: Values) -> dict[PoolKind, float]:
        """Return what values free against none: as measured with the most of them, the rest as believed."""
        full = {**self._base, **values}
        believed = self._believed(full)
        start = self._peaks.get(key_of(self._base))
        if start is None:
            return believed
        parts = (each for each in self._peaks.values() if self._is_part(each, full))
        best = max(parts, key=lambda each: sum(self._places(each.values)), default=start)
        real = {kind: _less(phases, best.mib[kind]) for kind, phases in start.mib.items() if kind in best.mib}
        beyond = summed(believed, {kind: -mib for kind, mib in self._believed(best.values).items()})
        return summed(dict.fromkeys(believed, 0.0), real, beyond)

    def _is_part(self, peak: _Peak, full: Values) -> bool:
        """Return whether a peak was measured no further down any rung than these values are."""
        return all(one <= other for one, other in zip(self._places(peak.values), self._places(full), strict=True))

    def _places(self, full: Values) -> list[int]:
        """Return how far down each rung values are, in steps."""
        return [self._steps_taken(rung, full) for rung in map(of_program, self._file.rungs)]

    def _believed(self, full: Values) -> dict[PoolKind, float]:
        freed = {PoolKind.VRAM: 0.0, PoolKind.RAM: 0.0}
        for own, steps in zip(self._file.rungs, self._places(full), strict=True):
            each = {PoolKind(kind): mib for kind, mib in own.frees_mib.items()} or {
                PoolKind(pool): self._half(PoolKind(pool)) for pool in own.pools if pool != PoolKind.DISK.value
            }
            freed = summed(freed, {kind: steps * mib for kind, mib in each.items()})
        return freed

    def _half(self, kind: PoolKind) -> float:
        peak = max(self._base_mib().get(kind, {}).values(), default=None)
        return UNKNOWN_MIB if peak is None else round(peak / 2, 1)

    def _steps_taken(self, rung: Rung, full: Values) -> int:
        sets = enumerate(rung.sets(self._base), start=1)
        return max((place for place, values in sets if values.items() <= full.items()), default=0)


def _over(under: ByPhase, over: ByPhase) -> dict[PoolKind, dict[str, float]]:
    """Return figures by pool and phase; where both have one, that of ``over``."""
    return {kind: {**under.get(kind, {}), **over.get(kind, {})} for kind in {**under, **over}}


def _less(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return by how much a peak fell, in the highest phase that both were measured in; 0 without one."""
    both = before.keys() & after.keys()
    return max(((before[phase], before[phase] - after[phase]) for phase in both), default=(0.0, 0.0))[1]
