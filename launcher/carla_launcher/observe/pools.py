"""What memory is, to the launcher: pools with a total, owners and a limit. Plain data, the same for VRAM, RAM and disk.

``memory`` makes them of what ``carla_run.memory`` reads; all others only look at them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from carla_run.memory.room import Gpu as Gpu


class PoolKind(str, Enum):
    """Of which memory."""

    VRAM = "vram"
    RAM = "ram"
    DISK = "disk"


class Provenance(str, Enum):
    """How a figure is known."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class OwnerKind(str, Enum):
    """Which part of the run an owner is. Only what isn't FOREIGN is ever touched."""

    SIMULATOR = "simulator"
    AGENT = "agent"
    LAUNCHER = "launcher"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Figure:
    """An amount in MiB, None where it is unknown, and how it is known; ``run``: the earlier one that measured it."""

    mib: float | None
    provenance: Provenance
    run: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.mib is None:
            return "unknown"
        return f"{self.mib:.0f} MiB" + (" (estimated)" if self.provenance is Provenance.ESTIMATED else "")


UNKNOWN = Figure(None, Provenance.UNKNOWN)


def measured(mib: float) -> Figure:
    """Return a figure that was read from the driver, the kernel or the file system."""
    return Figure(round(mib, 1), Provenance.MEASURED)


def estimated(mib: float) -> Figure:
    """Return a figure that follows from others."""
    return Figure(round(mib, 1), Provenance.ESTIMATED)


@dataclass(frozen=True)
class Owner:
    """Who holds a part of a pool.

    Attributes:
        name: for people: ``simulator``, ``agent``, else the program's name, with its container if it has one.
        kind: of this run, or foreign.
        pids: host process ids; empty where they are unknown.
        held: what it holds, never page cache or mappings of files.
    """

    name: str
    kind: OwnerKind
    pids: tuple[int, ...]
    held: Figure

    def __str__(self) -> str:
        processes = f" (process {', '.join(map(str, self.pids))})" if self.pids else ""
        return f"{self.name}{processes} holds {self.held}"


@dataclass(frozen=True)
class Pool:
    """One memory that several share.

    Attributes:
        name: unique: ``vram:0`` (GPU index), ``ram`` (this machine, or the launcher's own cgroup), ``ram:agent`` and
            ``ram:simulator`` (a container's limit), ``disk`` (file system of the run directory).
        total: what there is, or the limit where that is less.
        free: what could be had now without any process giving way.
        owners: biggest first; what no process is known to hold is no owner.
        oom_kills: of this pool's cgroup since it began; 0 where there is no counter.
    """

    name: str
    kind: PoolKind
    total: Figure
    free: Figure
    owners: tuple[Owner, ...] = ()
    oom_kills: int = 0

    def held_by(self, kind: OwnerKind) -> float:
        """Return the MiB that owners of one kind are known to hold."""
        return sum(owner.held.mib or 0.0 for owner in self.owners if owner.kind is kind)


@dataclass(frozen=True)
class Cards:
    """Which GPU simulator and agent use, by index as the driver counts; the same one twice is one pool."""

    simulator: int = 0
    agent: int = 0

    @property
    def indices(self) -> tuple[int, ...]:
        """Return each once, in order."""
        return tuple(sorted({self.simulator, self.agent}))

    def pool_of(self, owner: OwnerKind) -> str:
        """Return the name of the VRAM pool of simulator or agent."""
        return vram_pool(self.simulator if owner is OwnerKind.SIMULATOR else self.agent)

    def __str__(self) -> str:
        return ",".join(map(str, dict.fromkeys((self.simulator, self.agent))))


def vram_pool(index: int) -> str:
    """Return the name of a GPU's pool."""
    return f"{PoolKind.VRAM.value}:{index}"


@dataclass(frozen=True)
class Reading:
    """All pools at one moment.

    Attributes:
        gpu: of the run's cards the one that is worst off.
        problem: what couldn't be read and why, a sentence for people; empty if all could.
    """

    pools: tuple[Pool, ...]
    gpu: Gpu = Gpu.NONE
    problem: str = ""

    def pool(self, name: str) -> Pool | None:
        """Return the pool of that name, if it was read."""
        return next((pool for pool in self.pools if pool.name == name), None)

    def of(self, kind: PoolKind) -> tuple[Pool, ...]:
        """Return the pools of one kind."""
        return tuple(pool for pool in self.pools if pool.kind is kind)
