"""Memory as plain data: pools with a total and owners, in one form for VRAM, RAM and disk.

``observe.memory`` makes them from the readings of ``carla_run.memory``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from carla_run.memory.room import Gpu as Gpu


class PoolKind(str, Enum):
    """Kind of memory."""

    VRAM = "vram"
    RAM = "ram"
    DISK = "disk"


PROCESS_POOLS = (PoolKind.VRAM, PoolKind.RAM)
"""Kinds that processes hold, and that are free again when they end."""


class Provenance(str, Enum):
    """How a figure is known."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class OwnerKind(str, Enum):
    """Kind of a memory's owner. The launcher never touches a FOREIGN one."""

    SIMULATOR = "simulator"
    AGENT = "agent"
    LAUNCHER = "launcher"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Figure:
    """An amount in MiB, None if unknown, and how it is known. ``run`` is the earlier run that measured it."""

    mib: float | None
    provenance: Provenance
    run: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.mib is None:
            return "unknown"
        return f"{self.mib:.0f} MiB" + (" (estimated)" if self.provenance is Provenance.ESTIMATED else "")


UNKNOWN = Figure(None, Provenance.UNKNOWN)


def measured(mib: float) -> Figure:
    """Return a figure that the driver, the kernel or the file system reported."""
    return Figure(round(mib, 1), Provenance.MEASURED)


def estimated(mib: float) -> Figure:
    """Return a figure that was computed from others."""
    return Figure(round(mib, 1), Provenance.ESTIMATED)


@dataclass(frozen=True)
class Owner:
    """An owner of a part of a pool.

    Attributes:
        name: ``simulator``, ``agent`` or ``launcher``, else the program's name, with its container if it has one.
        pids: process ids on this host; empty if unknown.
        held: memory that it holds, without page cache and mapped files.
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
    """One memory that several processes share.

    Attributes:
        name: unique: ``vram:0`` (GPU index), ``ram`` (this machine, or the launcher's cgroup), ``ram:agent`` and
            ``ram:simulator`` (a container's limit), ``disk`` (file system of the run directory).
        total: its size, or a limit below that.
        free: memory that can be had now without taking it from a process.
        owners: biggest first; memory without a known process has no owner here.
        oom_kills: OOM kills in the pool's cgroup; 0 without a counter.
    """

    name: str
    kind: PoolKind
    total: Figure
    free: Figure
    owners: tuple[Owner, ...] = ()
    oom_kills: int = 0

    def held_by(self, kind: OwnerKind) -> float:
        """Return the memory of all owners of one kind, in MiB."""
        return sum(owner.held.mib or 0.0 for owner in self.owners if owner.kind is kind)


@dataclass(frozen=True)
class Cards:
    """The GPUs of simulator and agent, by the driver's index; if they are the same there is one pool."""

    simulator: int = 0
    agent: int = 0

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the distinct indices in order."""
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
        gpu: state of the run's GPUs, the worst one's.
        problem: which pool couldn't be read and why, a sentence; empty if all could.
    """

    pools: tuple[Pool, ...]
    gpu: Gpu = Gpu.NONE
    problem: str = ""

    def pool(self, name: str) -> Pool | None:
        """Return the pool of a name; None if it wasn't read."""
        return next((pool for pool in self.pools if pool.name == name), None)

    def of(self, kind: PoolKind) -> tuple[Pool, ...]:
        """Return the pools of one kind."""
        return tuple(pool for pool in self.pools if pool.kind is kind)
