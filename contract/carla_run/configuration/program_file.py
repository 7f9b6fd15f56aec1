"""The program file: what a launcher has to know of a program that trains, as the author of the program writes it.

Owns its schema. Every key is optional: what isn't said, a launcher doesn't do for the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from carla_run.configuration import model_file
from carla_run.configuration.program_life import Alive, Checkpoint, Done, End, Resume, Setting
from carla_run.configuration.routes_section import Routes
from carla_run.configuration.section import MOST_EXIT_CODE, Section
from carla_run.exits import Exit, ExitError
from carla_run.heartbeat import Heartbeat

HALF, FEWER = "half", "fewer"
Memory = Literal["vram", "ram", "disk"]
UPDATING = "updating"
Mib = Annotated[float, Field(gt=0)]


class Loss(str, Enum):
    """The cost of a rung to the run."""

    LITTLE = "little"
    """Some speed. The running program applies it, and learns the same."""
    TIME = "time"
    """More speed, a restart, or outputs that training doesn't use."""
    EXPERIMENT = "experiment"
    """The program learns something else."""


class ProgramRung(Section):
    """A rung of the program: values with which it needs less memory."""

    name: str = Field(min_length=1, description="Name of the rung, unique. --policy picks and orders rungs by it.")
    values: dict[str, Any] = Field(
        min_length=1,
        description="By key: a value; a list of values, taken in order; `half`, which halves a number step by step "
        "down to 1; or `fewer`, which lowers it by 1.",
    )
    does: Literal["apply", "restart_agent", "one_simulator_less"] = Field(
        "restart_agent",
        description="How the values are applied: `apply` and `one_simulator_less` (which also ends a simulator) while "
        "the program runs, `restart_agent` by a restart.",
    )
    pools: tuple[Memory, ...] = Field(("vram", "ram"), min_length=1, description="Pools whose ladders have this rung.")
    loses: Loss = Field(Loss.EXPERIMENT, description="What the rung costs. Cheaper rungs are taken first.")
    cost: str = Field("", description="The cost as text, shown to users.")
    frees_mib: dict[Memory, float] = Field(
        {},
        description="MiB that the rung frees in each pool; negative if it takes memory. Default: the program's "
        "footprint tells them; without a footprint, half of the program's peak until it is measured.",
    )
    allowed: bool = Field(True, description="false: the rung is taken only if --policy names it.")
    by_itself: tuple[str, ...] = Field(
        (), description="Values of `gave_way` in a heartbeat that show that the program took this rung by itself."
    )

    @field_validator("values")
    @classmethod
    def _have_steps(cls, values: dict[str, Any]) -> dict[str, Any]:
        if empty := [key for key, value in values.items() if value == []]:
            raise ValueError(f"{empty[0]} is an empty list, so the rung would change nothing; list its values in order")
        return values


class ProgramKeys(Section):
    """Keys of the program's configuration that a launcher reads or sets; empty if the program has no such key."""

    simulators: str = Field("", description="Key for the number of simulators.")
    simulators_at_work: str = Field("", description="Key for the number of simulators in use now; null for all.")
    cluster: str = Field("", description="Key for the address of a cluster.")
    cluster_simulator: str = Field("", description="Key for the launcher's arguments that start a simulator on a node.")
    tick_timeout_s: str = Field("", description="Key for the time-out of a tick.")
    tick_margin_s: str = Field(
        "", description="Key for the time after that time-out at which a hung process is replaced."
    )

    @property
    def of_time(self) -> tuple[str, ...]:
        """Keys that don't affect memory."""
        return self.simulators_at_work, self.tick_timeout_s, self.tick_margin_s


class PhaseMemory(Section):
    """Estimated peak of the program in a phase that it reports, per pool, in MiB. A phase left out is as `memory`."""

    warming: dict[Memory, Mib] = Field({}, description="Before its first update.")
    updating: dict[Memory, Mib] = Field({}, description="While it learns. It replaces `memory`.")
    evaluating: dict[Memory, Mib] = Field({}, description="While it evaluates.")


class ProgramFile(Section):
    """The content of a program file."""

    routes: Routes | None = Field(None, description="An evaluation for `carla-launcher routes`.")
    keys: ProgramKeys = ProgramKeys()
    stands_for: dict[str, str] = Field(
        {}, description="By key: another key, whose value is used if the first one is null."
    )
    heartbeat: dict[str, str] = Field(
        {}, description="By configuration key: the field of the heartbeat that has its value."
    )
    options: dict[str, tuple[str, ...]] = Field(
        {}, description="By option of the command: the keys that the option sets."
    )
    smaller: dict[Memory, str] = Field(
        {}, description="By pool (vram, ram, disk): the key that a user should lower first if the pool is short."
    )
    without_evaluation: dict[str, Any] = Field({}, description="Values that switch evaluation off.")
    rungs: tuple[ProgramRung, ...] = Field((), description="Rungs, in order among those with the same loss.")
    settings: dict[str, Setting] = Field(
        {}, description="How each key of a rung reaches the program. Not needed if the program reads overrides.yaml."
    )
    memory: dict[Memory, Mib] = Field(
        {},
        description="Estimated peak of the program in each pool, in MiB. Measurements of earlier runs replace it.",
    )
    memory_by_phase: PhaseMemory = PhaseMemory()
    resume: Resume | None = Field(
        None, description="How the program resumes. Without this section each start begins from step 0."
    )
    exits: dict[int, End] = Field(
        {0: End.FINISHED, 75: End.STOPPED},
        description="Meaning of the program's exit codes; any other code is a crash. Replaces all of the default.",
    )
    done: Done | None = Field(
        None, description="What shows that the program has finished. Without it, the exit code does."
    )
    alive: Alive | None = Field(
        None, description="What shows progress. Without this section a process that runs never counts as hung."
    )
    checkpoint: Checkpoint | None = Field(
        None, description="How the launcher asks for a checkpoint. Without this section it doesn't ask."
    )
    stop_grace_s: float | None = Field(
        None,
        ge=0,
        description="Seconds between SIGTERM and SIGKILL. Default: the launcher's agent.stop_grace_s.",
    )
    reconnects: bool = Field(
        False,
        description="Whether the program reconnects to a restarted simulator. If not, the launcher restarts it.",
    )
    fresh_simulator: bool = Field(
        True, description="Whether each start of the program gets a new simulator, without actors of an earlier start."
    )
    simulator_hangs_after_s: float = Field(
        60.0,
        gt=0,
        description="A simulator whose game thread answers no health check for this many seconds counts as hung.",
    )

    @field_validator("heartbeat")
    @classmethod
    def _shown(cls, heartbeat: dict[str, str]) -> dict[str, str]:
        known = [field.name for field in fields(Heartbeat)]
        if odd := [name for name in heartbeat.values() if name not in known]:
            raise ValueError(f"heartbeat names {', '.join(odd)}; a heartbeat has {', '.join(known)}")
        return heartbeat

    @field_validator("exits")
    @classmethod
    def _can_be(cls, exits: dict[int, End]) -> dict[int, End]:
        if odd := [code for code in exits if not 0 <= code <= MOST_EXIT_CODE]:
            raise ValueError(f"exits has {odd[0]}; expected codes from 0 to {MOST_EXIT_CODE}, 128 + n for signal n")
        return exits

    @field_validator("rungs")
    @classmethod
    def _have_different_names(cls, rungs: tuple[ProgramRung, ...]) -> tuple[ProgramRung, ...]:
        model_file.refuse_duplicates([rung.name for rung in rungs], "rungs")
        return rungs

    @property
    def estimates_mib(self) -> dict[str, dict[str, float]]:
        """Return the estimated peak by pool and phase; ``memory`` is that of updating."""
        found: dict[str, dict[str, float]] = {pool: {UPDATING: mib} for pool, mib in self.memory.items()}
        for phase, peaks in self.memory_by_phase:
            for pool, mib in peaks.items():
                found.setdefault(pool, {})[phase] = mib
        return found

    def present(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by dotted key, each null replaced by its meaning."""
        nulls = {key: values.get(other) for key, other in self.stands_for.items() if values.get(key) is None}
        return {**values, **nulls}

    def shown(self, beat: Heartbeat) -> dict[str, Any]:
        """Return the values that a heartbeat shows, by dotted key."""
        return {key: getattr(beat, field) for key, field in self.heartbeat.items()}


class ProgramFileError(ExitError):
    """A program file that can't be used. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG


def load(path: Path) -> ProgramFile:
    """Return a program file.

    Raises:
        ProgramFileError: it is missing, isn't YAML, or a key or value is wrong.
    """
    return model_file.read(path, ProgramFile, ProgramFileError)


def validate(values: Any, source: str) -> ProgramFile:
    """Return values as a program file; ``source`` is named in errors.

    Raises:
        ProgramFileError: a value is wrong; one sentence on the first one.
    """
    return model_file.checked(values, source, ProgramFile, ProgramFileError)
