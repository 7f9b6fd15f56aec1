"""The processes of a command: its descendants, and who else is of its session. Owns the reading of /proc for that."""

from __future__ import annotations

import time
from pathlib import Path

REFRESH_S = 0.1


class Tree:
    """The processes that a command consists of, looked up at most ten times a second."""

    def __init__(self, root: int, library: str) -> None:
        """``root``: the command's own process, the leader of its session; ``library``: begins a file name."""
        self._root = root
        self._library = library
        self._pids: frozenset[int] = frozenset({root})
        self._looked_s = -REFRESH_S
        self._loaded = False

    def pids(self) -> frozenset[int]:
        """Return the process ids."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= REFRESH_S:
            self._looked_s = now_s
            self._pids = _of(self._root)
        return self._pids

    def has_loaded(self) -> bool:
        """Return whether one of them has mapped the library, or had; looked up each time until one has."""
        self._loaded = self._loaded or any(_maps(pid, self._library) for pid in self._pids)
        return self._loaded


def _of(root: int) -> frozenset[int]:
    parents, found = {}, {root}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent, session = _parent_and_session(entry)
            parents[int(entry.name)] = parent
            if session == root:
                found.add(int(entry.name))
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return frozenset(found)


def _parent_and_session(entry: Path) -> tuple[int, int]:
    try:
        after_name = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(after_name[1]), int(after_name[3])


def _maps(pid: int, library: str) -> bool:
    try:
        return f"/{library}" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
