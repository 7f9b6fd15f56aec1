"""Host memory as pools: this machine's RAM, and that of each container with a limit; and the owner of each process.

An owner is the simulator, the agent, the launcher, or a foreign program with its container. The memory of a process is
counted by ``carla_run.memory.processes``, that of a container by ``carla_run.memory.cgroups``.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

from carla_launcher.observe.pools import UNKNOWN, Figure, Owner, OwnerKind, Pool, PoolKind, estimated, measured
from carla_run.memory.cgroups import Cgroups, Group
from carla_run.memory.processes import PROC, first_page, held_mib, resident_mib
from carla_run.memory.room import ram_room

NAMED_MIB = 32.0
"""Foreign processes that hold less are not listed."""

SMALL_FOR = 5
"""Readings for which a process that was small is not read again: small processes were most of a reading's cost."""

_CONTAINER = re.compile(r"(?<!conmon-)[0-9a-f]{64}")

ContainerName = Callable[[str], str | None]
"""Takes a container id (64 hexadecimal digits), returns its name; None for a container that the engine doesn't know."""


class OwnerName(NamedTuple):
    """An owner's name and kind."""

    name: str
    kind: OwnerKind


@dataclass(frozen=True)
class RunProcesses:
    """The processes of this run, by their ids on this host."""

    simulator: Collection[int] = ()
    agent: Collection[int] = ()
    launcher: Collection[int] = field(default_factory=lambda: (os.getpid(),))
    in_job: Callable[[int], bool] | None = None
    """Says of any other process whether it belongs to the same batch job; then it counts as the agent's."""

    def kind_of(self, pid: int) -> OwnerKind:
        """Return the kind of a process's owner."""
        if pid in self.simulator:
            return OwnerKind.SIMULATOR
        if pid in self.agent:
            return OwnerKind.AGENT
        if pid in self.launcher:
            return OwnerKind.LAUNCHER
        return OwnerKind.AGENT if self.in_job is not None and self.in_job(pid) else OwnerKind.FOREIGN


class OwnerNames:
    """Finds the owner of a process. Asks for each container's name once."""

    def __init__(self, container_name: ContainerName = lambda _id: None, proc: Path = PROC) -> None:
        self.ask_engine(container_name)
        self._proc = proc

    def ask_engine(self, container_name: ContainerName) -> None:
        """Use this function from now on to get containers' names."""
        self._container_name = lru_cache(maxsize=256)(container_name)

    def of(self, pid: int, run: RunProcesses, program: Callable[[int], str] = lambda _pid: "") -> OwnerName:
        """Return the owner of a process.

        Args:
            program: another source of program names, asked for foreign processes before /proc.
        """
        kind = run.kind_of(pid)
        if kind is not OwnerKind.FOREIGN:
            return OwnerName(kind.value, kind)
        name = program(pid) or program_name(pid, self._proc) or f"process {pid}"
        container = container_id(pid, self._proc)
        if container is not None:
            name += f" (container {self._container_name(container) or container[:12]})"
        return OwnerName(name, kind)


class Ram:
    """Reads the RAM pools.

    Args:
        names: finds the owner of a process.
        proc: the /proc file system.
        allotted_mib: RAM that a batch system allots to the run without a control group; None for all.
    """

    def __init__(self, names: OwnerNames, proc: Path = PROC, allotted_mib: float | None = None) -> None:
        self._allotted_mib = allotted_mib
        self._names = names
        self._proc = proc
        self._cgroups = Cgroups(proc)
        self._limits_mib: Mapping[OwnerKind, float] = {}
        self._small: set[int] = set()
        self._readings = 0

    def expect_containers(self, limits_mib: Mapping[OwnerKind, float]) -> None:
        """Include an empty pool for each container that doesn't exist yet, with this limit in MiB."""
        self._limits_mib = limits_mib

    def pools(self, run: RunProcesses) -> tuple[Pool, ...]:
        """Return ``ram``, then ``ram:agent`` and ``ram:simulator`` if they have limits; empty without /proc."""
        own = self._cgroups.of()
        host = self._host(own, run)
        if host is None:
            return ()
        parts = ((OwnerKind.AGENT, run.agent), (OwnerKind.SIMULATOR, run.simulator))
        return (host, *(pool for kind, pids in parts for pool in self._limited(kind, pids, own)))

    def _host(self, own: Group | None, run: RunProcesses) -> Pool | None:
        if (room := ram_room(own, self._proc)) is None:
            return None
        within = None if own is None or own.limit_mib != room.total_mib else own.limited_at
        total, free, held = room.total_mib, room.free_mib, self._held(run, within)
        if self._allotted_mib is not None:
            held = {pid: mib for pid, mib in held.items() if run.kind_of(pid) is not OwnerKind.FOREIGN}
            ours = sum(mib or 0.0 for mib in held.values())  # other jobs of the node take nothing of the allotment
            total, free = min(total, self._allotted_mib), min(free, max(0.0, self._allotted_mib - ours))
        owners = grouped(held, lambda pid: self._names.of(pid, run))
        return Pool("ram", PoolKind.RAM, measured(total), measured(free), owners, own.oom_kills if own else 0)

    def _limited(self, kind: OwnerKind, pids: Collection[int], own: Group | None) -> Iterator[Pool]:
        """Yield the pool of a container; its free memory follows from its own limits only."""
        groups = [found for found in map(self._cgroups.of, self._in_other_groups(pids)) if found is not None]
        limited = (found for found in groups if found.limit_mib is not None)  # Podman's monitor is in one without
        group = next(limited, groups[0] if groups else None)
        if group is None and kind in self._limits_mib:
            limit = measured(self._limits_mib[kind])
            yield Pool(f"ram:{kind.value}", PoolKind.RAM, limit, limit)
        if group is None or group.limit_mib is None or group.room_mib is None or (own and own.folder == group.folder):
            return
        owner = Owner(kind.value, kind, tuple(sorted(pids)), measured(group.held_mib))
        limit, room = measured(group.limit_mib), measured(group.room_mib)
        yield Pool(f"ram:{kind.value}", PoolKind.RAM, limit, room, (owner,), group.oom_kills)

    def _in_other_groups(self, pids: Collection[int]) -> Iterator[int]:
        """Yield the processes in other control groups than this one: the client of a container is in the same."""
        own = first_page(f"{self._proc}/self/cgroup")
        return (pid for pid in sorted(pids) if first_page(f"{self._proc}/{pid}/cgroup") != own)

    def _held(self, run: RunProcesses, within: Path | None) -> dict[int, float | None]:
        """Return what each process of this run holds, and each foreign one that holds ``NAMED_MIB`` or more.

        Where a control group's limit counts, only processes within it take of that.
        """
        if self._readings % SMALL_FOR == 0:
            self._small.clear()
        self._readings += 1
        held: dict[int, float | None] = {}
        for name in filter(str.isdecimal, os.listdir(self._proc)):  # noqa: PTH208  a thousand Paths a second otherwise
            pid = int(name)
            foreign = run.kind_of(pid) is OwnerKind.FOREIGN
            if foreign and pid in self._small:
                continue
            mib = None if foreign and resident_mib(pid, self._proc) < NAMED_MIB else held_mib(pid, self._proc)
            if foreign and ((mib or 0.0) < NAMED_MIB or not (within is None or self._cgroups.is_below(pid, within))):
                self._small.add(pid)
            elif mib is not None:
                held[pid] = mib
        return held


def grouped(
    held: Mapping[int, float | None], owner_of: Callable[[int], OwnerName], used_mib: float | None = None
) -> tuple[Owner, ...]:
    """Return one owner for each name, biggest first, those of unknown size last.

    Args:
        held: MiB by process id; None if unknown.
        owner_of: returns a process's owner.
        used_mib: what all hold together. If only one owner is partly unknown, the rest is its estimate.
    """
    groups: dict[OwnerName, list[int]] = defaultdict(list)
    for pid in sorted(held):
        groups[owner_of(pid)].append(pid)
    unclear = [name for name, pids in groups.items() if any(held[pid] is None for pid in pids)]
    rest = None if used_mib is None or len(unclear) > 1 else used_mib - sum(mib or 0.0 for mib in held.values())
    owners = [Owner(*name, tuple(pids), _together([held[pid] for pid in pids], rest)) for name, pids in groups.items()]
    return tuple(sorted(owners, key=lambda owner: (-(owner.held.mib or 0.0), owner.name)))


def _together(parts: Collection[float | None], rest: float | None) -> Figure:
    known = sum(part or 0.0 for part in parts)
    if None not in parts:
        return measured(known)
    return UNKNOWN if rest is None else estimated(known + max(0.0, rest))


def program_name(pid: int, proc: Path = PROC) -> str:
    """Return the name of a process's program, without its folder; empty if there is no such process."""
    try:
        first = (proc / str(pid) / "cmdline").read_bytes().split(b"\0", 1)[0]
        first = first.split(b" --", 1)[0]  # a browser's child processes have their whole command line as one word
        written = first or (proc / str(pid) / "comm").read_bytes()  # a kernel thread has no command line
    except OSError:
        return ""
    return PurePath(written.decode(errors="replace").strip()).name


def is_in_container(pid: int, container: str) -> bool:
    """Return whether a process of this machine is in a container, by its control groups or mounted files.

    An engine in a virtual machine, or on another machine, gives process ids that belong to other processes here.
    """
    return any(container in _text(PROC / str(pid) / name) for name in ("cgroup", "mountinfo"))


def container_id(pid: int, proc: Path = PROC) -> str | None:
    """Return the id of the container that a process is in, by its control groups; None if it is in no container.

    Docker, containerd and Podman all end a container's group with its id. So does the group of Podman's monitor of the
    container (``libpod-conmon-ID.scope``), which is not in it.
    """
    found = _CONTAINER.search(_text(proc / str(pid) / "cgroup"))
    return found.group() if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
