"""Reads memory limits and usage of the kernel's control groups, version 1 or 2.

Only memory that the kernel can't drop counts: anonymous and shared pages, and its own unreclaimable ones. Pages of
files are in a group's usage as well, but are dropped when memory runs short (docs/facts.md, section 6).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carla_run.memory.processes import MIB, PROC

_UNLIMITED = 2**60  # version 1 writes the largest multiple of a page for "no limit"


@dataclass(frozen=True)
class Group:
    """A control group at one moment.

    Attributes:
        folder: folder of its files.
        limit_mib: the lowest limit of the group and its ancestors; None without a limit.
        room_mib: memory that it can still take: the least of limit minus held, of the group and its ancestors; None
            without a limit.
        held_mib: memory that counts, of the group and the groups below it.
        oom_kills: number of its processes that the kernel killed for memory; 0 without a counter.
        limited_at: folder of its highest ancestor with a limit, or of itself; None without a limit.
    """

    folder: Path
    limit_mib: float | None
    room_mib: float | None
    held_mib: float
    oom_kills: int
    limited_at: Path | None = None


@dataclass(frozen=True)
class _Version:
    """File and field names of one version."""

    limit: str
    events: str
    counted: tuple[str, ...]


# Version 1 counts the kernel's own pages in one sum with droppable ones, so they are left out there.
_V1 = _Version("memory.limit_in_bytes", "memory.oom_control", ("total_rss", "total_shmem"))
_V2 = _Version(
    *("memory.max", "memory.events"),
    ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock"),
)


@dataclass(frozen=True)
class _Mount:
    """Mount point of a hierarchy; in a container its root may be a group below the hierarchy's root."""

    version: _Version
    root: str
    point: Path


class Cgroups:
    """Finds and reads the groups of processes, as visible to this process."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._mounts = _mounts(_lines(proc / "self" / "mountinfo"))

    def of(self, pid: int | str = "self") -> Group | None:
        """Return the memory group of a process.

        None if there is no such process or memory controller, or if this process's mount doesn't show the group. Both
        versions may be mounted; the one without the memory controller lacks its files.
        """
        return next((group for each in self._places(pid) if (group := _read(*each)) is not None), None)

    def is_below(self, pid: int, folder: Path) -> bool:
        """Return whether a process is in the group of this folder, or in one below it."""
        places = (mount.point / os.path.relpath(path, mount.root) for mount, path in self._places(pid))
        return any(folder in (each, *each.parents) for each in places)

    def _places(self, pid: int | str) -> Iterator[tuple[_Mount, str]]:
        """Yield a process's groups, each with its hierarchy."""
        for line in _lines(self._proc / str(pid) / "cgroup"):
            _, controllers, path = line.split(":", 2)
            if (mount := self._mounts.get(_hierarchy(controllers))) is not None:
                yield mount, path


def least(levels: Iterable[tuple[int, int]]) -> tuple[int | None, int | None]:
    """Return the effective limit and the room below it, both in bytes; None without a limit.

    Args:
        levels: limit and held memory of a group and its ancestors, without those that have no limit.
    """
    limits = tuple(levels)
    if not limits:
        return None, None
    return min(limit for limit, _ in limits), max(0, min(limit - held for limit, held in limits))


def oom_kills(file: Path) -> int | None:
    """Return the number of OOM kills in a file of a group or of the machine; None without a counter."""
    return next((int(line.split()[1]) for line in _lines(file) if line.startswith("oom_kill ")), None)


def _mounts(mountinfo: list[str]) -> dict[str, _Mount]:
    """Return the hierarchies that may have the memory controller, by version (mountinfo is explained in proc(5))."""
    found = {}
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, point = before.split(" ")[3:5]
        if kind == "cgroup2":
            found["v2"] = _Mount(_V2, root, Path(point))
        elif kind == "cgroup" and "memory" in options.split(","):
            found["v1"] = _Mount(_V1, root, Path(point))
    return found


def _hierarchy(controllers: str) -> str:
    if not controllers:
        return "v2"
    return "v1" if "memory" in controllers.split(",") else ""


def _read(mount: _Mount, path: str) -> Group | None:
    version, relative = mount.version, Path(os.path.relpath(path, mount.root))
    if relative.parts[:1] == ("..",):
        return None
    above = (mount.point / each for each in (relative, *relative.parents))
    folders = [folder for folder in above if (folder / "memory.stat").exists()]  # others have no controller
    if not folders:
        return None
    own = _held(folders[0], version)
    limits = [(_limit(folder / version.limit), folder) for folder in folders]
    limited_at = next((folder for limit, folder in reversed(limits) if limit is not None), None)
    limit, room = least(
        (limit, own if folder == folders[0] else _held(folder, version))
        for limit, folder in limits
        if limit is not None
    )
    kills = oom_kills(folders[0] / version.events) or 0
    return Group(folders[0], _mib(limit), _mib(room), own / MIB, kills, limited_at)


def _mib(count: int | None) -> float | None:
    return None if count is None else count / MIB


def _limit(path: Path) -> int | None:
    written = next(iter(_lines(path)), "max")
    return None if written == "max" or int(written) >= _UNLIMITED else int(written)


def _held(folder: Path, version: _Version) -> int:
    stat = _table(folder / "memory.stat")
    return sum(stat.get(name, 0) for name in version.counted)


def _table(path: Path) -> dict[str, int]:
    pairs = (line.split(" ") for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
