"""Reads memory limits and usage of the kernel's control groups (cgroups), version 1 or 2.

Counts only memory that the kernel can't reclaim: anonymous and shared pages, and unreclaimable pages of the kernel. The
kernel's own figure of usage also has cached pages of files, which are dropped when memory runs short (docs/facts.md,
section 6).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carla_run.memory.processes import MIB, PROC

_UNLIMITED = 2**60  # for "no limit", version 1 writes a number of bytes above this: the largest multiple of a page


@dataclass(frozen=True)
class Group:
    """A control group at one moment.

    Attributes:
        folder: folder in which the kernel shows the group.
        limit_mib: lowest limit among the group and its ancestors; None if none of them has a limit.
        room_mib: memory that the group can still take. Every ancestor's limit counts: the smallest difference between a
            limit and the memory held under it. None if there is no limit.
        held_mib: memory that the kernel can't reclaim, in the group and its subgroups.
        oom_kills: number of the group's processes that the kernel killed for memory; 0 if it doesn't count them.
        limited_at: folder of the highest group that has a limit, which may be an ancestor; None without a limit.
    """

    folder: Path
    limit_mib: float | None
    room_mib: float | None
    held_mib: float
    oom_kills: int
    limited_at: Path | None = None


@dataclass(frozen=True)
class _Version:
    """Names of files and fields in one version of control groups."""

    limit: str
    events: str
    counted: tuple[str, ...]


# Version 1 has only one sum of the kernel's reclaimable and unreclaimable pages, so neither is counted there.
_V1 = _Version("memory.limit_in_bytes", "memory.oom_control", ("total_rss", "total_shmem"))
_V2 = _Version(
    *("memory.max", "memory.events"),
    ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock"),
)


@dataclass(frozen=True)
class _Mount:
    """Mount point of a hierarchy of groups. In a container ``root`` may be a group below the hierarchy's root."""

    version: _Version
    root: str
    point: Path


class Cgroups:
    """Finds and reads the memory groups of processes, in the hierarchies that this process has mounted."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._mounts = _mounts(_lines(proc / "self" / "mountinfo"))

    def of(self, pid: int | str = "self") -> Group | None:
        """Return the memory group of a process.

        None if the process or the memory controller doesn't exist, or if the mounts of this process don't show the
        group. If both versions are mounted, the one with the memory controller is read.
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


def effective_limit(levels: Iterable[tuple[int, int]]) -> tuple[int | None, int | None]:
    """Return the lowest limit of a group and its ancestors, and the room that all limits leave; None without a limit.

    Args:
        levels: limit and held memory, in bytes, of each of these groups that has a limit.
    """
    limited = tuple(levels)
    if not limited:
        return None, None
    return min(limit for limit, _ in limited), max(0, min(limit - held for limit, held in limited))


def oom_kills(file: Path) -> int | None:
    """Return the counter ``oom_kill`` of a group's file or of /proc/vmstat; None if the file doesn't have it."""
    return next((int(line.split()[1]) for line in _lines(file) if line.startswith("oom_kill ")), None)


def _mounts(mountinfo: list[str]) -> dict[str, _Mount]:
    """Return the mounted hierarchies that may have the memory controller, by version. Format: mountinfo in proc(5)."""
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
    folders = [folder for folder in above if (folder / "memory.stat").exists()]  # groups with the memory controller
    if not folders:
        return None
    own = _held(folders[0], version)
    limits = [(_limit(folder / version.limit), folder) for folder in folders]
    limited_at = next((folder for limit, folder in reversed(limits) if limit is not None), None)
    limit, room = effective_limit(
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
