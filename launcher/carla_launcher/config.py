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
from carla_launcher.rungs.rung import Rung
from carla_run.configuration import model_file
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError

SHIPPED = Path(__file__).resolve().with_name("launcher.yaml")
_COMPLETE = f"{SHIPPED.name} as shipped"
CHECKOUT = Path(__file__).resolve().parents[2]
STACK = CHECKOUT if (CHECKOUT / "docker-compose.yml").is_file() else Path()
"""Folder of the Compose files unless ``--stack`` names another one; a wheel has none."""
DEFAULT_CONFIG = Path("lowmem")
"""The agent's configuration of a new run for which none is given."""


class LauncherConfigError(ExitError):
    """A configuration that can't be used. The message is one sentence for the user (exit code 65)."""

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
    """How often, and after which delays, a program is restarted after a failure."""

    budget: int = Field(ge=0, description="Restarts after failures in a row. One more failure ends the run.")
    stable_after_s: float = Field(
        gt=0, description="A program that ran this long without a failure starts with a fresh budget."
    )
    first_delay_s: float = Field(gt=0, description="Delay before the first restart. Each further one doubles it.")
    longest_delay_s: float = Field(gt=0, description="Longest delay before a restart.")
    jitter: float = Field(ge=0, lt=1, description="Random share by which a delay is made longer or shorter.")


class LeakRestarts(Section):
    """How often a program that leaks is restarted before memory is short."""

    budget: int = Field(ge=0, description="Restarts in a row. Afterwards a leak is ignored until memory is short.")
    stable_after_s: float = Field(
        gt=0, description="A program that ran this long before it leaked again starts with a fresh budget."
    )


class SimulatorLimits(Section):
    """How the simulator is started, checked and restarted."""

    map: str = Field(description="Map that carla-lite starts with. --map overrides it.")
    map_dir: Path | None = Field(
        description="Folder of .xodr files that carla-lite offers by name, such as Town01 for Town01.xodr. null: none."
    )
    seed: int = Field(ge=0, description="Seed of carla-lite. --seed overrides it.")
    start_limit_s: float = Field(
        gt=0, description="Longest time until a started CARLA answers and ticks. A cold start takes up to 180 s."
    )
    lite_start_limit_s: float = Field(gt=0, description="Longest time until a started carla-lite answers and ticks.")
    running_limit_s: float = Field(
        gt=0, description="Longest time until a simulator that already runs (--simulator-host) answers and ticks."
    )
    check_timeout_s: float = Field(gt=0, le=5, description="Time limit for each answer in a health check.")
    stop_grace_s: float = Field(ge=0, description="Time between SIGTERM and SIGKILL.")
    quality: Quality = Field(description="CARLA's rendering quality. --quality overrides it.")
    command: str | None = Field(
        description="Command that starts a CARLA installed on this machine, with {quality}, {port} and {gpu}. "
        "null: no CARLA is installed."
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
    """How the agent is stopped and restarted."""

    stop_grace_s: float = Field(
        ge=0, description="Time between SIGTERM and SIGKILL, in which the agent writes a checkpoint."
    )
    answer_limit_s: float = Field(
        gt=0, description="Longest wait for the agent's answer to a request. It answers after a running evaluation."
    )
    beat_limit_s: float = Field(gt=0, description="An agent without a heartbeat for this long counts as hung.")
    warming_limit_s: float = Field(
        gt=0, description="Longest time from the agent's start to the end of its rehearsal, and without progress later."
    )
    hang_margin_s: float = Field(
        gt=0, description="Time beyond the agent's own time-outs after which a missing tick counts as a hang."
    )
    restarts: Restarts


class MemoryLimits(Section):
    """How much memory is kept free, and when memory counts as short or leaking."""

    reserve_mib: dict[PoolKind, Mib] = Field(description="Memory that is kept free in each pool.")
    pressure_s: float = Field(
        ge=0, description="A pool that is below its reserve for this long counts as short. A shorter dip doesn't."
    )
    relief_mib: float = Field(
        ge=0, description="A shortage ends when this much more than the reserve is free in the pool."
    )
    horizon_s: float = Field(gt=0, description="A leak is acted on if it exhausts its pool within this time.")
    urgent_s: float = Field(
        gt=0, description="A leak that exhausts its pool within this time is acted on before the episode ends."
    )
    slope_window_s: float = Field(gt=0, description="Time window over which the growth of a process is fitted.")
    growth_mib: float = Field(gt=0, description="Least growth within that window that counts, as a leak or as a cause.")
    band_share: float = Field(
        gt=0, description="Least deviation from the expected memory that is reported (out_of_band), as a share of it."
    )
    band_mib: float = Field(
        gt=0, description="Least deviation from the expected memory that is reported. Both must be exceeded."
    )
    oom_step_mib: dict[PoolKind, Mib] = Field(
        description="Smallest amount that a rung must free after a process ran out of memory, unless the process says "
        "how much was missing."
    )
    leak_restarts: LeakRestarts
    timeline_s: float = Field(gt=0, description="Interval between two lines of launcher-memory.jsonl.")
    foreign_mib: float = Field(gt=0, description="Least growth of a foreign process that is reported.")
    foreign_share: float = Field(
        ge=0,
        lt=1,
        description="Least growth that is reported, as a share of the memory that was free. Both must be reached.",
    )
    foreign_patience_s: float = Field(
        ge=0, description="Longest wait at a run's first start for memory that foreign processes hold."
    )

    @field_validator("reserve_mib", "oom_step_mib")
    @classmethod
    def _of_every_pool(cls, values: dict[PoolKind, float], info: ValidationInfo) -> dict[PoolKind, float]:
        return _complete(values, PoolKind, f"memory.{info.field_name}")


class RestoreLimits(Section):
    """When a step down the ladder is restored."""

    settle_s: float = Field(ge=0, description="Time after a start or a step until memory is judged again.")
    hold_s: float = Field(
        gt=0, description="Time for which the memory must suffice before a restore. A failed restore doubles it."
    )
    longest_hold_s: float = Field(gt=0, description="Longest hold time that failed restores lead to.")
    margin_mib: float = Field(
        ge=0, description="Memory that must be free beyond the reserve and beyond what the restore takes."
    )
    probation_s: float = Field(
        gt=0, description="A restore that is followed by another step down within this time failed."
    )


class WatchLimits(Section):
    """How often simulator, agent and memory are observed."""

    interval_s: float = Field(gt=0, le=5, description="Interval between two observations.")
    check_every_s: float = Field(gt=0, description="Interval between two requests for the simulator's version.")
    checks_failed: int = Field(
        ge=1, description="Unanswered requests in a row after which the simulator counts as hung."
    )
    dying_s: float = Field(
        ge=0, description="Time for a simulator to exit after it closed its connections. Its exit code says more."
    )
    sign_s: float = Field(
        gt=0, description="Largest age of a line in the simulator's log that may explain why the simulator ended."
    )
    gap_s: float = Field(
        gt=0, description="After a gap of this length between two observations (suspend) all waiting times restart."
    )


class CarlaSizes(Section):
    """Estimates of the simulators' memory. Measurements of earlier runs replace them."""

    vram_mib: dict[Quality, Annotated[float, Field(gt=0)]] = Field(
        description="CARLA's peak of VRAM, for Low and for Epic."
    )
    ram_mib: float = Field(gt=0, description="CARLA's anonymous memory, in either quality.")
    lite_ram_mib: float = Field(gt=0, description="carla-lite's anonymous memory.")

    @field_validator("vram_mib")
    @classmethod
    def _of_every_quality(cls, values: dict[Quality, float]) -> dict[Quality, float]:
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
        description="Rungs of each pool, in the order in which they are taken. A pool without a list has none.",
    )
    poll_s: float = Field(gt=0, le=1, description="Interval between two checks for ended processes and stop requests.")

    @model_validator(mode="after")
    def _rungs_have_names_of_their_own(self) -> LauncherConfig:
        for kind, rungs in self.ladder.items():
            model_file.refuse_duplicates([rung.name for rung in rungs], f"ladder.{kind.value}")
        return self


def load(path: Path = SHIPPED) -> LauncherConfig:
    """Return the configuration of a file.

    Raises:
        LauncherConfigError: it is missing, isn't YAML, or a key or value is wrong.
    """
    return model_file.read(path, LauncherConfig, LauncherConfigError, _COMPLETE)


def validate(values: Any, source: str) -> LauncherConfig:
    """Return the configuration that values make; ``source`` is named in errors.

    Raises:
        LauncherConfigError: a value is wrong; one sentence on the first one.
    """
    return model_file.checked(values, source, LauncherConfig, LauncherConfigError, _COMPLETE)
