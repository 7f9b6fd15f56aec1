"""The launcher's configuration: what ``launcher/launcher.yaml`` holds, checked.

Owns the schema and the sentences about it; the values stand only in the file. Knows nothing of the agent's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from carla_launcher.observe.pools import PoolKind
from carla_launcher.rungs.rung import Rung
from carla_run.configuration import model_file
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError

SHIPPED = Path(__file__).resolve().with_name("launcher.yaml")
_COMPLETE = f"{SHIPPED.name} as shipped"
CHECKOUT = Path(__file__).resolve().parents[2]
STACK = CHECKOUT if (CHECKOUT / "docker-compose.yml").is_file() else Path()
"""Where the Compose files lie unless ``--stack`` names another folder; a wheel has none."""
DEFAULT_CONFIG = Path("lowmem")
"""The agent's, of a new run that names none."""


class LauncherConfigError(ExitError):
    """A configuration that can't be used; the message is one sentence for a person (exit code 65)."""

    code = Exit.BAD_CONFIG


Mib = Annotated[float, Field(ge=0)]
Quality = Literal["Low", "Epic"]
_Key = TypeVar("_Key", PoolKind, Quality)
_Value = TypeVar("_Value")


def _complete(values: dict[_Key, _Value], keys: Iterable[_Key], name: str) -> dict[_Key, _Value]:
    if missing := [str(getattr(key, "value", key)) for key in keys if key not in values]:
        raise ValueError(f"{name} has nothing for {', '.join(missing)}: add it, as {SHIPPED.name} as shipped has it")
    return values


class Restarts(Section):
    """How often something is started again after a failure, and when."""

    budget: int = Field(ge=0, description="Failures in a row that are answered by a restart; one more ends the run.")
    stable_after_s: float = Field(gt=0, description="Well for this long, earlier failures are forgotten.")
    first_delay_s: float = Field(gt=0, description="Before the first restart; doubles with each further one.")
    longest_delay_s: float = Field(gt=0, description="Where the doubling ends.")
    jitter: float = Field(ge=0, lt=1, description="Random share by which a delay is longer or shorter.")


class LeakRestarts(Section):
    """How often a program that leaks is started again before memory is short."""

    budget: int = Field(ge=0, description="In a row; after so many the leak is left to run until memory is short.")
    stable_after_s: float = Field(
        gt=0, description="It ran so long before it had to be again: earlier ones don't count."
    )


class SimulatorLimits(Section):
    """How the simulator is started, and how often again."""

    map: str = Field(description="Map of a simulator that the launcher starts, unless --map names another.")
    map_dir: Path | None = Field(
        description="Folder of .xodr files that carla-lite offers by name (Town01.xodr as Town01); null: none."
    )
    seed: int = Field(ge=0, description="Its seed, unless --seed gives another.")
    start_limit_s: float = Field(gt=0, description="Of CARLA from its start to answering and ticking; 180 s when cold.")
    lite_start_limit_s: float = Field(gt=0, description="The same of carla-lite.")
    running_limit_s: float = Field(gt=0, description="The same for one that already runs (--simulator-host).")
    check_timeout_s: float = Field(gt=0, le=5, description="Of each answer in a health check.")
    stop_grace_s: float = Field(ge=0, description="Between SIGTERM and SIGKILL.")
    quality: Quality = Field(description="Of CARLA, unless --quality names another.")
    command: str | None = Field(
        description="How a CARLA that is installed here is started, with {quality}, {port} and {gpu}; null: none is."
    )
    restarts: Restarts

    def installed(self, quality: str, port: int, gpu: int = 0) -> tuple[str, ...]:
        """Return ``command`` filled in, word by word; empty if there is none."""
        return tuple(word.format(quality=quality, port=port, gpu=gpu) for word in shlex.split(self.command or ""))

    @property
    def picks_gpu(self) -> bool:
        """Return whether ``command`` says on which card CARLA draws."""
        return self.installed("Low", 2000, 0) != self.installed("Low", 2000, 1)

    @field_validator("command")
    @classmethod
    def _empty_is_none(cls, command: str | None) -> str | None:
        return command if command and command.strip() else None

    @field_validator("map_dir")
    @classmethod
    def _found_from_everywhere(cls, folder: Path | None) -> Path | None:
        if folder is not None and not (folder := folder.expanduser()).is_absolute():
            raise ValueError(
                f"simulator.map_dir is {folder}, expected a path from / or ~ on: a later start may come from another "
                "folder"
            )
        return folder

    @model_validator(mode="after")
    def _command_can_be_filled_in(self) -> SimulatorLimits:
        try:
            self.installed("Low", 2000)
        except (LookupError, ValueError):
            raise ValueError(
                f"simulator.command is `{self.command}`; expected words as a shell takes them, "
                "with no other braces than {quality}, {port} and {gpu}"
            ) from None
        return self


class AgentLimits(Section):
    """How the agent is stopped and started again."""

    stop_grace_s: float = Field(ge=0, description="Between SIGTERM and SIGKILL: its time to write a checkpoint.")
    answer_limit_s: float = Field(gt=0, description="For the answer to a request; an evaluation may be under way.")
    beat_limit_s: float = Field(gt=0, description="Without a heartbeat for this long, it hangs.")
    warming_limit_s: float = Field(gt=0, description="From its start to the end of its rehearsal.")
    hang_margin_s: float = Field(gt=0, description="Beyond the agent's own time-outs, until a tick counts as hung.")
    restarts: Restarts


class MemoryLimits(Section):
    """What is kept free, and what counts as running out."""

    reserve_mib: dict[PoolKind, Mib] = Field(description="Kept free in each pool.")
    pressure_s: float = Field(ge=0, description="Below the reserve for this long counts; a shorter dip doesn't.")
    relief_mib: float = Field(ge=0, description="Free beyond the reserve by this much: a shortage is over.")
    horizon_s: float = Field(gt=0, description="Exhaustion that the slope foresees within this time is acted on.")
    urgent_s: float = Field(gt=0, description="Within this time without waiting for an episode's end.")
    slope_window_s: float = Field(gt=0, description="Readings that a slope is fitted to.")
    growth_mib: float = Field(gt=0, description="Growth in that window that is no noise: a leak, or to blame.")
    band_share: float = Field(gt=0, description="An owner outside expected ± this share is an event.")
    band_mib: float = Field(gt=0, description="And outside expected ± this.")
    oom_step_mib: dict[PoolKind, Mib] = Field(description="Freed at least after memory ran out by an unknown amount.")
    leak_restarts: LeakRestarts
    timeline_s: float = Field(gt=0, description="Between two lines of the memory's timeline.")
    foreign_mib: float = Field(gt=0, description="A foreign process that grew by this much is named.")
    foreign_share: float = Field(ge=0, lt=1, description="If that is also this share of what was free before.")
    foreign_patience_s: float = Field(
        ge=0, description="To wait for a foreign process's memory before the run can start."
    )

    @field_validator("reserve_mib", "oom_step_mib")
    @classmethod
    def _of_every_pool(cls, values: dict[PoolKind, float], info: ValidationInfo) -> dict[PoolKind, float]:
        return _complete(values, PoolKind, f"memory.{info.field_name}")


class RestoreLimits(Section):
    """When what was given up is taken back."""

    settle_s: float = Field(ge=0, description="After a change of rung, until the next is judged.")
    hold_s: float = Field(gt=0, description="The rung above has fitted for this long; doubles with a failed restore.")
    longest_hold_s: float = Field(gt=0, description="Where the doubling ends.")
    margin_mib: float = Field(ge=0, description="Free beyond reserve and what the rung above takes.")
    probation_s: float = Field(gt=0, description="Memory running out within this time after a restore: it has failed.")


class WatchLimits(Section):
    """How often is looked."""

    interval_s: float = Field(gt=0, le=5, description="Between two observations.")
    check_every_s: float = Field(gt=0, description="Between two questions for the simulator's version.")
    checks_failed: int = Field(ge=1, description="Unanswered in a row, until the simulator counts as dead.")
    dying_s: float = Field(ge=0, description="A simulator whose connection ended may take so long to end, and say how.")
    sign_s: float = Field(gt=0, description="A line in its log so long before its end tells why it ended.")
    gap_s: float = Field(gt=0, description="Between two looks: the machine slept, and waiting times start again.")


class CarlaSizes(Section):
    """First figures of CARLA's memory; a run's own watermark replaces them."""

    vram_mib: dict[Quality, Annotated[float, Field(gt=0)]] = Field(description="Peak by quality: Low, Epic.")
    ram_mib: float = Field(gt=0, description="Anonymous memory of the server, whichever quality.")
    lite_ram_mib: float = Field(gt=0, description="The same of carla-lite.")

    @field_validator("vram_mib")
    @classmethod
    def _of_every_quality(cls, values: dict[Quality, float]) -> dict[Quality, float]:
        return _complete(values, get_args(Quality), "sizes.vram_mib")


class LauncherConfig(Section):
    """Everything the launcher goes by."""

    simulator: SimulatorLimits
    agent: AgentLimits
    memory: MemoryLimits
    restore: RestoreLimits
    watch: WatchLimits
    sizes: CarlaSizes
    ladder: dict[PoolKind, Annotated[tuple[Rung, ...], Field(min_length=1)]] = Field(
        min_length=1, description="For each pool, first choice first; a pool that isn't named has no rungs."
    )
    poll_s: float = Field(gt=0, le=1, description="Between two looks at processes and requests to stop.")

    @model_validator(mode="after")
    def _rungs_have_names_of_their_own(self) -> LauncherConfig:
        for kind, rungs in self.ladder.items():
            model_file.refuse_twice([rung.name for rung in rungs], f"ladder.{kind.value}")
        return self


def load(path: Path = SHIPPED) -> LauncherConfig:
    """Return the checked file.

    Raises:
        LauncherConfigError: it is missing, isn't YAML, or a key or value is wrong.
    """
    return model_file.read(path, LauncherConfig, LauncherConfigError, _COMPLETE)


def validate(values: Any, source: str) -> LauncherConfig:
    """Return the checked configuration; ``source`` is named in the error.

    Raises:
        LauncherConfigError: with one sentence on the first thing that is wrong.
    """
    return model_file.checked(values, source, LauncherConfig, LauncherConfigError, _COMPLETE)
