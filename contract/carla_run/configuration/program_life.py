"""A program's life, as its file describes it: how it starts again, what shows that it lives, saves and is done.

Paths are relative to the folder in which the program runs.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from carla_run.configuration.section import Section, refuse_odd_variable


class End(str, Enum):
    """Meaning of an exit code."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """On request, and its checkpoint is written."""
    BAD_ARGUMENTS = "bad_arguments"
    BAD_CONFIGURATION = "bad_configuration"
    NO_SIMULATOR = "no_simulator"
    OUT_OF_MEMORY = "out_of_memory"


def _one_of(section: Section, name: str, keys: tuple[str, ...]) -> None:
    given = [key for key in keys if key in section.model_fields_set and getattr(section, key) not in (None, "")]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise ValueError(f"{name} has {said}; expected one of {', '.join(keys)}")


def refuse_what_fits_all(key: str, pattern: str | None, what: str = "line") -> str | None:
    """Return a pattern for lines of the output, or for other texts, as ``what`` says.

    Raises:
        ValueError: it is no regular expression, or fits each of them.
    """
    try:
        found = re.compile("-" if pattern is None else pattern)
    except re.error as error:
        raise ValueError(f"{key} is {pattern!r}; expected a regular expression ({error})") from None
    if found.search("") is not None:
        raise ValueError(f"{key} is {pattern!r}, which every {what} fits: it can't fail")
    return pattern


class Resume(Section):
    """How the program starts when this isn't its first start in the run."""

    words: tuple[str, ...] = Field(
        (), description="Arguments that are added to the command; none, `[]`, if the program resumes by itself."
    )
    command: tuple[str, ...] = Field((), description="Command that replaces the first one.")
    checkpoint: str = Field(
        "",
        description="File name or pattern of its checkpoints, such as `logs/**/model_*.zip`. Words or command may name "
        "`{checkpoint}`: the newest one that was written since the run began. While there is none, the program starts "
        "from the beginning. If the program crashes twice at its start from the same one, before the progress that "
        "`alive` names, the launcher adds `.unfit` to its name, and the program resumes from the one before.",
    )

    @model_validator(mode="after")
    def _is_one_way(self) -> Resume:
        _one_of(self, "resume", ("words", "command"))
        if not self.checkpoint and any("{checkpoint}" in word for word in (*self.words, *self.command)):
            raise ValueError("resume names {checkpoint}, and resume.checkpoint doesn't say which files these are")
        return self


class Done(Section):
    """What, together with the exit code, shows that the program has finished its work. An end without it is a crash.

    A program that showed it and then crashed, as in the clean-up of a library, has finished, too.
    """

    file: Path | None = Field(None, description="File that exists when the work is finished.")
    log: str | None = Field(
        None, description="Regular expression that a line of the output matches when the work is finished."
    )
    exits_within_s: float | None = Field(
        None,
        gt=0,
        description="A program that still runs so many seconds after it showed this is ended, and has finished. Only "
        "for a sign that comes once, at the end. null: it counts as hung as without the sign.",
    )

    @field_validator("log")
    @classmethod
    def _can_fail(cls, pattern: str | None) -> str | None:
        return refuse_what_fits_all("done.log", pattern)

    @model_validator(mode="after")
    def _is_one_sign(self) -> Done:
        if self.file is not None and self.log is not None:
            raise ValueError("done has file and log; expected one of them")
        if self.exits_within_s is not None and self.file is None and self.log is None:
            raise ValueError("done.exits_within_s needs a sign that the work is finished: give done.file or done.log")
        return self


class Alive(Section):
    """Signs of progress, and the longest time without progress."""

    file: Path | None = Field(None, description="Progress is each change of this file.")
    folder: Path | None = Field(None, description="Progress is each change of a file in this folder.")
    log: str | None = Field(
        None,
        description="Regular expression. Each line of the output that it matches is progress. If it has a group, the "
        "group is the training step, and only a new step is progress.",
    )
    step_in_name: str | None = Field(
        None,
        description="Regular expression with one group, the training step, for the names of files in `folder`, such as "
        "`model_(\\d+)_steps\\.zip`. Then only a file with such a name is progress.",
    )
    steps: int | None = Field(
        None, ge=1, description="Number of steps of the whole training, to estimate the time left."
    )
    within_s: float = Field(gt=0, description="Without progress for this many seconds it counts as hung.")
    first_within_s: float | None = Field(
        None, gt=0, description="Limit for the first progress after a start. Default: within_s, at least 600."
    )

    @property
    def first_limit_s(self) -> float:
        """How long the first progress may take."""
        return self.first_within_s or max(self.within_s, 600.0)

    @field_validator("log")
    @classmethod
    def _can_fail(cls, pattern: str | None) -> str | None:
        return refuse_what_fits_all("alive.log", pattern)

    @field_validator("step_in_name")
    @classmethod
    def _has_a_step(cls, pattern: str | None) -> str | None:
        refuse_what_fits_all("alive.step_in_name", pattern, "name")
        if pattern is not None and re.compile(pattern).groups != 1:
            raise ValueError(f"alive.step_in_name is {pattern!r}; expected one group, the step, such as `_(\\d+)_`")
        if pattern is not None and "/" in pattern:
            raise ValueError(
                f"alive.step_in_name is {pattern!r}, which fits no name: none has a /; name the folder in folder"
            )
        return pattern

    @model_validator(mode="after")
    def _is_one_sign(self) -> Alive:
        _one_of(self, "alive", ("file", "folder", "log"))
        if self.step_in_name is not None and self.folder is None:
            raise ValueError("alive.step_in_name needs the folder of these files: give alive.folder")
        if self.first_limit_s < self.within_s:
            raise ValueError(f"alive.first_within_s is {self.first_limit_s:g}; expected at least alive.within_s")
        return self


class Checkpoint(Section):
    """How the program is asked for a checkpoint while it runs, and what shows that the checkpoint is there."""

    signal: Literal["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT"] | None = Field(
        None, description="Signal that asks for it."
    )
    touch: Path | None = Field(None, description="File that the launcher touches to ask.")
    shows: Path = Field(description="File or folder that changes when the checkpoint is written.")

    @model_validator(mode="after")
    def _is_one_way(self) -> Checkpoint:
        _one_of(self, "checkpoint", ("signal", "touch"))
        return self


class Setting(Section):
    """How a value of a rung reaches the program at its next start."""

    word: str | None = Field(
        None,
        description="Option of the command, such as `--batch-size`, or with `=` at the end, such as "
        "`train.batch_size=`. Its value in the command is replaced. If the command lacks the option, it is added.",
    )
    environment: str | None = Field(None, description="Environment variable that gets the value.")
    yaml: Path | None = Field(
        None,
        description="YAML file that the command names, and `resume.command` if there is one. The command gets a copy "
        "with the new value instead.",
    )
    key: str | None = Field(None, description="Dotted key in that YAML file. Default: the rung's key.")
    value: Any = Field(None, description="Value before any rung is taken, if neither command nor YAML has one.")

    @model_validator(mode="after")
    def _is_one_way(self) -> Setting:
        _one_of(self, "a setting", ("word", "environment", "yaml"))
        if self.environment is not None:
            refuse_odd_variable(self.environment)
        return self
