"""The processes of a command: its descendants, and the others of its session."""

from __future__ import annotations

import time

from contract.processes import has_mapped, session_tree

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
            self._pids = session_tree(self._root)
        return self._pids

    def has_loaded(self) -> bool:
        """Return whether one of them has mapped the library, or had; looked up each time until one has."""
        self._loaded = self._loaded or any(has_mapped(pid, self._library) for pid in self._pids)
        return self._loaded
