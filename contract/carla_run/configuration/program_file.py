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
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError
from carla_run.heartbeat import Heartbeat

HALF, FEWER = "half", "fewer"
Memory = Literal["vram", "ram", "disk"]


class Loses(str, Enum):
    """What a rung costs the run."""

    LITTLE = "little"
    """Some speed; the running program takes it, and learns the same."""
    TIME = "time"
    """More speed, a restart, or what nothing is learned from."""
    EXPERIMENT = "experiment"
    """It learns something else."""


class ProgramRung(Section):
    """One of the program's own ways to take less memory."""

    name: str = Field(description="Unique; `--policy` orders and picks by it.")
    values: dict[str, Any] = Field(
        min_length=1,
        description="By key: a value; a list of values in the order in which they are taken; `half` halves what it is, "
        "again and again down to 1; `fewer` takes one away.",
    )
    does: Literal["apply", "restart_agent", "one_simulator_less"] = Field(
        "restart_agent",
        description="How it takes them: `apply` while it runs, as one_simulator_less, which ends a simulator as well.",
    )
    pools: tuple[Memory, ...] = Field(("vram", "ram"), description="Memory that it is a way to free.")
    loses: Loses = Field(Loses.EXPERIMENT, description="little, time or experiment: what is lost least is taken first.")
    cost: str = Field("", description="The same in words, for the report.")
    frees_mib: dict[Memory, float] = Field(
        {},
        description="What each value is believed to free; negative where it costs. Empty: as the program says; "
        "of one that says nothing, half of its peak until that was measured.",
    )
    allowed: bool = Field(True, description="false: never taken unless --policy names it.")
    by_itself: tuple[str, ...] = Field(
        (), description="`gave_way` of a heartbeat that says that the program took it by itself, for want of memory."
    )


class ProgramKeys(Section):
    """Keys of the program's configuration that a launcher reads or sets; empty where it has none."""

    simulators: str = Field("", description="In how many simulators it drives.")
    simulators_at_work: str = Field("", description="In how many of them now; null for all.")
    cluster: str = Field("", description="Address of the cluster on whose nodes it drives.")
    cluster_simulator: str = Field("", description="Words with which a launcher starts a simulator there.")
    tick_timeout_s: str = Field("", description="How long it waits for a tick.")
    tick_margin_s: str = Field("", description="And how long beyond that for a process that ticks.")

    @property
    def of_time(self) -> tuple[str, ...]:
        """Those that no measured peak is told apart by."""
        return self.simulators_at_work, self.tick_timeout_s, self.tick_margin_s


class ProgramFile(Section):
    """All that a launcher knows of a program by its file."""

    routes: Routes | None = Field(None, description="How an evaluation is given out (`carla-launcher routes`).")
    keys: ProgramKeys = ProgramKeys()
    stands_for: dict[str, str] = Field({}, description="Key whose null means the value of another key: that key.")
    heartbeat: dict[str, str] = Field({}, description="Key whose value a heartbeat shows: the heartbeat's field.")
    options: dict[str, tuple[str, ...]] = Field({}, description="Option of its command: the keys that it sets.")
    smaller: dict[Memory, str] = Field({}, description="Key that a person lowers first where this memory is short.")
    without_evaluation: dict[str, Any] = Field({}, description="Values with which it doesn't evaluate.")
    rungs: tuple[ProgramRung, ...] = Field((), description="First choice first, among those that lose as little.")
    settings: dict[str, Setting] = Field(
        {}, description="How each key of a rung reaches the program, where it reads no overrides.yaml."
    )
    memory: dict[Memory, Annotated[float, Field(gt=0)]] = Field(
        {},
        description="Believed peak of the program, MiB, which what earlier runs measured replaces.",
    )
    resume: Resume | None = Field(None, description="Without it a program that ended begins from the start.")
    exits: dict[int, End] = Field(
        {0: End.FINISHED, 75: End.STOPPED},
        description="What its exit codes say; any other one is a crash. Given, it stands in place of all.",
    )
    done: Done | None = Field(None, description="Without it the exit code is enough.")
    alive: Alive | None = Field(None, description="Without it, it lives as long as it runs.")
    checkpoint: Checkpoint | None = Field(None, description="Without it, it isn't asked for any.")
    stop_grace_s: float | None = Field(
        None,
        ge=0,
        description="Between SIGTERM and SIGKILL. Default: the launcher's agent.stop_grace_s.",
    )
    reconnects: bool = Field(
        False,
        description="true: it drives on in a simulator that was started again. Else it is started again too.",
    )
    fresh_simulator: bool = Field(
        True, description="Each start of the program gets a fresh simulator, without what the last one left in it."
    )
    simulator_hangs_after_s: float = Field(
        60.0, gt=0, description="So long a simulator that it drives may leave questions to its game thread unanswered."
    )

    @field_validator("heartbeat")
    @classmethod
    def _shown(cls, heartbeat: dict[str, str]) -> dict[str, str]:
        known = [field.name for field in fields(Heartbeat)]
        if odd := [name for name in heartbeat.values() if name not in known]:
            raise ValueError(f"heartbeat names {', '.join(odd)}; a heartbeat has {', '.join(known)}")
        return heartbeat

    @field_validator("rungs")
    @classmethod
    def _have_different_names(cls, rungs: tuple[ProgramRung, ...]) -> tuple[ProgramRung, ...]:
        model_file.refuse_twice([rung.name for rung in rungs], "rungs")
        return rungs

    def present(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values, by dotted key, each null replaced by the value that it stands for."""
        nulls = {key: values.get(other) for key, other in self.stands_for.items() if values.get(key) is None}
        return {**values, **nulls}

    def shown(self, beat: Heartbeat) -> dict[str, Any]:
        """Return the values that hold, by dotted key, as far as a heartbeat shows them."""
        return {key: getattr(beat, field) for key, field in self.heartbeat.items()}


class ProgramFileError(ExitError):
    """A program file that can't be used; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def load(path: Path) -> ProgramFile:
    """Return the checked file.

    Raises:
        ProgramFileError: it is missing, isn't YAML, or a key or value is wrong.
    """
    return model_file.read(path, ProgramFile, ProgramFileError)


def validate(values: Any, source: str) -> ProgramFile:
    """Return the checked values of a file; ``source`` is named in the error.

    Raises:
        ProgramFileError: with one sentence on the first thing that is wrong.
    """
    return model_file.checked(values, source, ProgramFile, ProgramFileError)
