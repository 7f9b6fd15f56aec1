"""Which processes descend from one: cheap enough to ask once a second. Reads /proc and signals nobody."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def tree(pid: int) -> frozenset[int]:
    """Return the ids of a process and all its descendants; empty if it has gone.

    Only these processes' own files are read, not all of the machine's. In a container started with ``init: true``
    everything but what ``docker exec`` brings in descends from its first process.
    """
    found: set[int] = set()
    new = [pid]
    while new:
        each = new.pop()
        if (tasks := _tasks(each)) is not None:
            found.add(each)
            new += [child for task in tasks for child in _children(task)]
    return frozenset(found)


def _tasks(pid: int) -> list[Path] | None:
    """Return a process's threads: a child belongs to the one that started it. None if the process has gone."""
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return None


def _children(task: Path) -> list[int]:
    try:
        return [int(child) for child in (task / "children").read_bytes().split()]
    except OSError:  # the thread has ended since
        return []
