"""A command that runs in the agent's place: the words, variables and files of each of its starts.

Owns how a value of a rung reaches it. Starts nothing; the words go to no shell, and its environment is written nowhere.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from carla_launcher.act.runtime import StartError
from carla_run import keys
from carla_run.configuration.program_file import ProgramFile
from carla_run.configuration.program_life import Setting
from carla_run.files import open_to_read, read_whole, write_whole, written_s
from carla_run.readers import number, object_of

Words = tuple[str, ...]
UNFIT = ".unfit"
"""End of the name of a checkpoint that isn't used any more."""


@dataclass(frozen=True)
class Command:
    """A command as it was asked for.

    Attributes:
        words: with their placeholders.
        file: what is known of the program.
        folder: in which it runs.
    """

    words: Words
    file: ProgramFile
    folder: Path

    def start(
        self, resume: bool, overrides: Mapping[str, Any], places: Mapping[str, str], copies: Path
    ) -> tuple[Words, dict[str, str]]:
        """Return the words of a start, and the variables that it adds to the environment.

        Args:
            resume: it was started in this run before.
            overrides: values of the present rung, by key.
            places: what the placeholders stand for, by name; ``checkpoint`` only if there is one.
            copies: folder for the YAML files of the program with other values.

        Raises:
            OSError: such a copy can't be written, or its original read.
            StartError: the original has no place for a value.
        """
        words, how = self.words, self.file.resume
        if resume and how is not None and ("checkpoint" in places or not how.checkpoint):
            words = how.command or (*words, *how.words)
        variables: dict[str, str] = {}
        in_files: dict[Path, dict[str, Any]] = {}
        for key, value in overrides.items():
            setting = self.file.settings.get(key, Setting(word=f"--{key}"))
            if setting.word:
                words = with_word(words, setting.word, text_of(value))
            elif setting.environment:
                variables[setting.environment] = text_of(value)
            elif setting.yaml:
                in_files.setdefault(setting.yaml, {})[setting.key or key] = value
        for place, (path, values) in enumerate(in_files.items()):
            words = self._with_copy(words, path, values, copies / str(place))
        return tuple(filled_in(word, places) for word in words), variables

    def checkpoints(self, since_s: float) -> list[Path]:
        """Return its checkpoints that were written since then, the newest first; empty where no pattern says which."""
        pattern = "" if self.file.resume is None else os.path.expanduser(self.file.resume.checkpoint)  # noqa: PTH111
        found = glob.glob(pattern, root_dir=self.folder, recursive=True) if pattern else []  # noqa: PTH207 (it may be from /)
        # A program that runs removes its old ones meanwhile, and may have a link that leads to one of them.
        written = {path: time_s for path in map(self.folder.joinpath, found) if (time_s := written_s(path)) is not None}
        fit = {each: time_s for each, time_s in written.items() if not any(part.endswith(UNFIT) for part in each.parts)}
        return [each for each in sorted(fit, key=fit.__getitem__, reverse=True) if fit[each] >= since_s]

    def resumes(self, since_s: float) -> bool:
        """Return whether a start continues: there is a way to, and a checkpoint since then if it needs one."""
        how = self.file.resume
        return how is not None and (not how.checkpoint or bool(self.checkpoints(since_s)))

    def value(self, key: str) -> Any:
        """Return what a key is without any rung; None where nothing says it.

        Raises:
            StartError: its file can't be read.
        """
        setting = self.file.settings.get(key, Setting(word=f"--{key}"))
        found = None
        if setting.word:
            found = word_in(self.words, setting.word)
        elif setting.yaml:
            found = keys.at(self.content(setting.yaml, {}), setting.key or key)
        return setting.value if found is None else found

    def content(self, path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of one of its files with these values, by dotted key.

        Raises:
            OSError: the file can't be read.
            StartError: it has no place for a value.
        """
        content = sections_of((self.folder / path).resolve())
        for key, value in values.items():
            try:
                _set(content, key, value)
            except ValueError as error:
                raise StartError(f"{self.folder / path}: {error}.") from None
        return content

    def _with_copy(self, words: Words, path: Path, values: Mapping[str, Any], copies: Path) -> Words:
        content = self.content(path, values)
        copies.mkdir(parents=True, exist_ok=True)
        copy = copies / path.name
        write_whole(copy, yaml.safe_dump(content, sort_keys=False))
        options = [self.option_of(word, path) for word in words]
        return tuple(word if each is None else f"{each}{copy}" for word, each in zip(words, options, strict=True))

    def option_of(self, word: str, path: Path) -> str | None:
        """Return what a word of the command has before a file of the program file.

        Empty if the word is the file alone, ``--config=`` if it is the value of an option; None if it doesn't name it.
        """
        option, equals, value = word.partition("=")
        if self.folder / word == self.folder / path:
            return ""
        return f"{option}=" if equals and self.folder / value == self.folder / path else None


def began_s(events: Path) -> float:
    """Return the time of a run's first event, seconds since 1970; 0 where there is none."""
    try:
        with open_to_read(events) as file:
            first = object_of(file.readline().decode(errors="replace"))
    except OSError:
        return 0.0
    return number(first.get("time")) or 0.0


def filled_in(word: str, places: Mapping[str, str]) -> str:
    """Return a word with its placeholders filled in; any other braces stay."""
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def text_of(value: Any) -> str:
    """Return a value as a command line or a variable has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def word_in(words: Words, option: str) -> Any:
    """Return the value that the words give an option, as YAML reads it; None where they don't."""
    for place, word in reversed([*enumerate(words)]):
        name, equals, value = word.partition("=")
        if word == option and place + 1 < len(words) and not option.endswith("="):
            return _as_yaml(words[place + 1])
        if equals and option.rstrip("=") == name:
            return _as_yaml(value)
    return None


def _as_yaml(word: str) -> Any:
    """Return a word as YAML reads it; the word itself if that is no YAML, such as ``[a``."""
    try:
        return yaml.safe_load(word)
    except (yaml.YAMLError, ValueError, RecursionError):
        return word


def with_word(words: Words, option: str, value: str) -> Words:
    """Return the words with an option at a value: replaced wherever they have it, else added."""
    name = option.rstrip("=")
    found, has_it = list(words), False
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words) and not option.endswith("="):
            found[place + 1], has_it = value, True
        elif word.startswith(f"{name}="):
            found[place], has_it = f"{name}={value}", True
    if has_it:
        return tuple(found)
    return (*words, f"{option}{value}") if option.endswith("=") else (*words, option, value)


def sections_of(path: Path) -> dict[str, Any]:
    """Return the sections of a YAML file; an empty file has none.

    Raises:
        OSError: it can't be read.
        StartError: it isn't YAML, or has no keys.
    """
    content = read_whole(path)
    try:
        found = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StartError(f"{path}: isn't YAML that can be read ({' '.join(str(error).split())}).") from None
    if found is not None and not isinstance(found, dict):
        raise StartError(f"{path}: all of it is {_shown(found)}; expected keys with their values.")
    return found or {}


def _shown(value: Any) -> str:
    """Return a value in words; of a list, which may contain itself, no more than that it is one."""
    return "a list" if isinstance(value, list) else keys.shown(value)


def _set(content: dict[str, Any], key: str, value: Any) -> None:
    """Set a value at its dotted key.

    Raises:
        ValueError: one of its sections is something else; a clause without a full stop.
    """
    *sections, name = key.split(".")
    for depth, each in enumerate(sections, start=1):
        inner = content.get(each)
        if inner is None:  # not there, or there without any key
            content[each] = inner = {}
        elif not isinstance(inner, dict):
            where = ".".join(sections[:depth])
            raise ValueError(f"`{where}` is {_shown(inner)}; expected keys below it, since `{key}` is a setting")
        content = inner
    content[name] = value
