"""Whose a process is: the simulator's, the agent's, the launcher's, or foreign, with its program and container.

Owns the names that people read. What a process holds is the readers' to say.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

from launcher.observe.pools import UNKNOWN, Figure, Owner, OwnerKind, estimated, measured

PROC = Path("/proc")
_CONTAINER = re.compile(r"[0-9a-f]{64}")

ContainerName = Callable[[str], str | None]
"""Container id (64 hexadecimal digits) → its name, or None for one that the engine doesn't know."""


class Who(NamedTuple):
    """One owner's name, and whose he is."""

    name: str
    whose: OwnerKind


@dataclass(frozen=True)
class Ours:
    """The processes of this run, as ids of this host."""

    simulator: Collection[int] = ()
    agent: Collection[int] = ()
    launcher: Collection[int] = field(default_factory=lambda: (os.getpid(),))

    def whose(self, pid: int) -> OwnerKind:
        """Return whose the process is."""
        if pid in self.simulator:
            return OwnerKind.SIMULATOR
        if pid in self.agent:
            return OwnerKind.AGENT
        return OwnerKind.LAUNCHER if pid in self.launcher else OwnerKind.FOREIGN


class Names:
    """Names owners; a container's name is asked for once."""

    def __init__(self, container_name: ContainerName, proc: Path = PROC) -> None:
        self.ask_engine(container_name)
        self._proc = proc

    def ask_engine(self, container_name: ContainerName) -> None:
        """Ask this for containers' names from now on."""
        self._container_name = lru_cache(maxsize=256)(container_name)

    def who(self, pid: int, ours: Ours, program: Callable[[int], str] = lambda _pid: "") -> Who:
        """Return the owner of a process.

        Args:
            program: what else names programs; asked for foreign processes first, and /proc where that says nothing.
        """
        whose = ours.whose(pid)
        if whose is not OwnerKind.FOREIGN:
            return Who(whose.value, whose)
        name = program(pid) or program_name(pid, self._proc) or f"process {pid}"
        container = container_id(pid, self._proc)
        if container is not None:
            name += f" (container {self._container_name(container) or container[:12]})"
        return Who(name, whose)


def grouped(
    held: Mapping[int, float | None], who: Callable[[int], Who], used_mib: float | None = None
) -> tuple[Owner, ...]:
    """Return one owner for each name, biggest first, those of unknown size last.

    Args:
        held: MiB by process id; None where it is unknown.
        used_mib: what all hold together. Where one owner alone is in part unknown, he holds the rest, estimated.
    """
    groups: dict[Who, list[int]] = defaultdict(list)
    for pid in sorted(held):
        groups[who(pid)].append(pid)
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
    """Return a process's program without its folder; empty where there is no such process."""
    try:
        first = (proc / str(pid) / "cmdline").read_bytes().split(b"\0", 1)[0]
        written = first or (proc / str(pid) / "comm").read_bytes()  # a kernel thread has no command line
    except OSError:
        return ""
    return PurePath(written.decode(errors="replace").strip()).name


def container_id(pid: int, proc: Path = PROC) -> str | None:
    """Return the id of the container that a process is in, by its control groups; None outside of any.

    Docker, containerd and Podman all end a container's group with its id.
    """
    try:
        groups = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _CONTAINER.search(groups)
    return found.group() if found else None
