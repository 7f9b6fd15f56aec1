"""The launcher's configuration: the schema of ``launcher.yaml``.

All default values are in that file only. The agent's configuration is not known here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from carla_launcher.observe.pools import PoolKind
from carla_launcher.places import SHIPPED
from carla_launcher.rungs.rung import Rung
from carla_run.configuration import model_file
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError

_COMPLETE = f"{SHIPPED.name} as shipped"


class LauncherConfigError(ExitError):
    """The configuration can't be used. The message is one sentence for the user (exit code 65)."""

    code = Exit.BAD_CONFIG


Mib = Annotated[float, Field(ge=0)]
Quality = Literal["Low", "Epic"]
_Key = TypeVar("_Key", PoolKind, Quality)
_Value = TypeVar("_Value")


def _complete(values: dict[_Key, _Value], keys: Iterable[_Key], name: str) -> dict[_Key, _Value]:
    if missing := [str(getattr(key, "value", key)) for key in keys if key not in values]:
        raise ValueError(
            f"{name} has no value for {', '.join(missing)}: add one, as in the {SHIPPED.name} that is shipped"
        )
    return values


class Restarts(Section):
    """How often, and after which delays, a program is restarted after a failure."""

    budget: int = Field(
        ge=0, description="Largest number of restarts in a row after failures. The next failure ends the run."
    )
    stable_after_s: float = Field(
        gt=0, description="After this time without a failure, the count of restarts begins at 0 again."
    )
    first_delay_s: float = Field(
        gt=0, description="Delay before the first restart. The delay doubles with each further restart in a row."
    )
    longest_delay_s: float = Field(gt=0, description="Longest delay before a restart.")
    jitter: float = Field(
        ge=0,
        lt=1,
        description="Each delay is made longer or shorter at random, at most by this share of it (0.2: 20 %).",
    )


class LeakRestarts(Section):
    """How often a program that leaks is restarted before memory is short."""

    budget: int = Field(
        ge=0,
        description="Largest number of restarts in a row because of a leak. After them, the launcher ignores a leak "
        "until memory is short.",
    )
    stable_after_s: float = Field(
        gt=0, description="If a program ran this long before it leaks, the count of restarts begins at 0 again."
    )


class SimulatorLimits(Section):
    """How the simulator is started, checked and restarted."""

    map: str = Field(description="Map that carla-lite starts with. --map overrides it.")
    map_dir: Path | None = Field(
        description="Folder of .xodr files that carla-lite offers by name, such as Town01 for Town01.xodr. null: none."
    )
    seed: int = Field(ge=0, description="Seed of carla-lite. --seed overrides it.")
    start_limit_s: float = Field(
        gt=0,
        description="Longest time from CARLA's start to its first answer and tick. A cold start takes up to 180 s.",
    )
    lite_start_limit_s: float = Field(
        gt=0, description="Longest time from carla-lite's start to its first answer and tick."
    )
    running_limit_s: float = Field(
        gt=0, description="Longest wait for an answer and a tick of a simulator that already runs (--simulator-host)."
    )
    check_timeout_s: float = Field(
        gt=0, le=5, description="Time limit for each answer of the simulator to a health check."
    )
    stop_grace_s: float = Field(ge=0, description="Time between SIGTERM and SIGKILL when the simulator is stopped.")
    quality: Quality = Field(description="CARLA's rendering quality. --quality overrides it.")
    command: str | None = Field(
        description="Command that starts the CARLA that is installed on this machine. The launcher replaces "
        "{quality}, {port} and {gpu} in it. null: no CARLA is installed."
    )
    restarts: Restarts

    def installed(self, quality: str, port: int, gpu: int = 0) -> tuple[str, ...]:
        """Return the words of ``command`` with its placeholders filled in; empty if there is no command."""
        return tuple(word.format(quality=quality, port=port, gpu=gpu) for word in shlex.split(self.command or ""))

    @property
    def picks_gpu(self) -> bool:
        """Return whether ``command`` chooses the GPU that CARLA renders on."""
        return self.installed("Low", 2000, 0) != self.installed("Low", 2000, 1)

    @field_validator("command")
    @classmethod
    def _empty_is_none(cls, command: str | None) -> str | None:
        return command if command and command.strip() else None

    @field_validator("map_dir")
    @classmethod
    def _is_absolute(cls, folder: Path | None) -> Path | None:
        if folder is not None and not folder.is_absolute():
            raise ValueError(
                f"simulator.map_dir is {folder}, expected an absolute path (from / or ~): the next start may be in "
                "another folder"
            )
        return folder

    @model_validator(mode="after")
    def _command_can_be_filled_in(self) -> SimulatorLimits:
        try:
            self.installed("Low", 2000)
        except (LookupError, ValueError):
            raise ValueError(
                f"simulator.command is `{self.command}`, expected a command line with no other braces than "
                "{quality}, {port} and {gpu}"
            ) from None
        return self


class AgentLimits(Section):
    """How the agent is stopped and restarted."""

    stop_grace_s: float = Field(
        ge=0,
        description="Time between SIGTERM and SIGKILL. In this time a stopped agent writes a checkpoint.",
    )
    answer_limit_s: float = Field(
        gt=0,
        description="Longest wait for the agent's answer to a request. During an evaluation it answers at the end.",
    )
    beat_limit_s: float = Field(gt=0, description="An agent that writes no heartbeat for this long counts as hung.")
    warming_limit_s: float = Field(
        gt=0,
        description="Longest time from the agent's start to the end of its test update (state WARMING). After "
        "that, the longest time without progress. A longer time counts as a hang.",
    )
    hang_margin_s: float = Field(
        gt=0,
        description="The agent has time-outs for ticks. A tick that is missing this long after them counts as a hang.",
    )
    restarts: Restarts


class MemoryLimits(Section):
    """How much memory is kept free, and when memory counts as short or leaking."""

    reserve_mib: dict[PoolKind, Mib] = Field(description="Memory that the launcher keeps free in each pool.")
    pressure_s: float = Field(
        ge=0, description="A pool counts as short when its free memory stays below the reserve for this long."
    )
    relief_mib: float = Field(
        ge=0, description="A shortage ends when the pool's free memory exceeds the reserve by this much."
    )
    horizon_s: float = Field(
        gt=0, description="The launcher acts on a leak that will exhaust its pool within this time."
    )
    urgent_s: float = Field(
        gt=0,
        description="If a leak will exhaust its pool within this time, the launcher acts before the episode ends.",
    )
    slope_window_s: float = Field(gt=0, description="Time window over which the growth of a process is fitted.")
    growth_mib: float = Field(
        gt=0,
        description="Smallest growth within slope_window_s that counts as a leak, and smallest growth that is named as "
        "the cause of a shortage.",
    )
    band_share: float = Field(
        gt=0,
        description="A program is reported (out_of_band) if its memory differs from the expected memory by more than "
        "this share of it, and by more than band_mib.",
    )
    band_mib: float = Field(gt=0, description="Smallest difference that is reported, see band_share.")
    oom_step_mib: dict[PoolKind, Mib] = Field(
        description="Smallest amount that a rung should free after a process ran out of memory, unless the process "
        "says how much was missing. Where no rung frees so much, the next one is taken."
    )
    leak_restarts: LeakRestarts
    timeline_s: float = Field(gt=0, description="Interval between two lines of launcher-memory.jsonl.")
    foreign_mib: float = Field(
        gt=0,
        description="The growth of a foreign process is reported if it reaches both this and foreign_share.",
    )
    foreign_share: float = Field(
        ge=0, lt=1, description="Smallest growth that is reported, as a share of the memory that was free before it."
    )
    foreign_patience_s: float = Field(
        ge=0, description="When a run starts for the first time, longest wait for foreign processes to free memory."
    )

    @field_validator("reserve_mib", "oom_step_mib")
    @classmethod
    def _has_every_pool(cls, values: dict[PoolKind, float], info: ValidationInfo) -> dict[PoolKind, float]:
        return _complete(values, PoolKind, f"memory.{info.field_name}")


class RestoreLimits(Section):
    """When the launcher undoes a rung (restores)."""

    settle_s: float = Field(
        ge=0,
        description="Time until memory has settled after a start, a rung or a restore. Memory measured earlier is not "
        "judged.",
    )
    hold_s: float = Field(
        gt=0,
        description="The memory that a restore needs must have been free for this time. Each failed restore doubles "
        "the time.",
    )
    longest_hold_s: float = Field(gt=0, description="Upper limit of the doubled hold_s.")
    margin_mib: float = Field(
        ge=0,
        description="Memory that must be free in addition to the reserve and to the memory that the restore needs.",
    )
    probation_s: float = Field(gt=0, description="A restore failed if a rung is taken within this time after it.")


class WatchLimits(Section):
    """How often simulator, agent and memory are observed."""

    interval_s: float = Field(gt=0, le=5, description="Interval between two observations.")
    check_every_s: float = Field(
        gt=0, description="Interval between two health checks, which request the simulator's version."
    )
    checks_failed: int = Field(
        ge=1, description="Number of unanswered health checks in a row after which the simulator counts as hung."
    )
    dying_s: float = Field(
        ge=0,
        description="Wait for the exit code of a simulator that has closed its connections. The code tells the cause.",
    )
    sign_s: float = Field(
        gt=0,
        description="A line of the simulator's log explains why the simulator ended only if it isn't older than this.",
    )
    gap_s: float = Field(
        gt=0,
        description="If the time between two observations exceeds this, as after a suspend, all waiting times restart.",
    )


class CarlaSizes(Section):
    """Estimates of the simulators' memory. Measurements of earlier runs replace them."""

    vram_mib: dict[Quality, Annotated[float, Field(gt=0)]] = Field(description="CARLA's peak VRAM, at Low and at Epic.")
    ram_mib: float = Field(gt=0, description="CARLA's anonymous RAM, at any quality.")
    lite_ram_mib: float = Field(gt=0, description="carla-lite's anonymous RAM.")

    @field_validator("vram_mib")
    @classmethod
    def _has_every_quality(cls, values: dict[Quality, float]) -> dict[Quality, float]:
        return _complete(values, get_args(Quality), "sizes.vram_mib")


class LauncherConfig(Section):
    """Settings that belong to no section."""

    simulator: SimulatorLimits
    agent: AgentLimits
    memory: MemoryLimits
    restore: RestoreLimits
    watch: WatchLimits
    sizes: CarlaSizes
    ladder: dict[PoolKind, Annotated[tuple[Rung, ...], Field(min_length=1)]] = Field(
        min_length=1,
        description="The launcher's rungs for each pool (vram, ram, disk), in the order in which they are taken. A "
        "pool that is left out has none.",
    )
    poll_s: float = Field(gt=0, le=1, description="Interval between two checks for ended processes and stop requests.")

    @model_validator(mode="after")
    def _names_are_unique(self) -> LauncherConfig:
        for kind, rungs in self.ladder.items():
            model_file.refuse_duplicates([rung.name for rung in rungs], f"ladder.{kind.value}")
        return self


def load(path: Path = SHIPPED) -> LauncherConfig:
    """Return the configuration of a file.

    Raises:
        LauncherConfigError: the file is missing or isn't YAML, or a key or value is wrong.
    """
    return model_file.read(path, LauncherConfig, LauncherConfigError, _COMPLETE)


def validate(values: Any, source: str) -> LauncherConfig:
    """Return the configuration with these values; errors name ``source``.

    Raises:
        LauncherConfigError: a value is wrong. The message names the first wrong value.
    """
    return model_file.checked(values, source, LauncherConfig, LauncherConfigError, _COMPLETE)
