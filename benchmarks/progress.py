"""A running training as seen from outside: its rows on disk, its pauses, and its programs' memory.

Owns a thread that observes. It reads the replay's files without the replay's code, because that code is under test.
"""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from carla_td3.td3.replay.layout import ROW

POLL_S = 0.05
PAUSE_S = 1.0
"""A run pauses if there is no new row for this long."""


@dataclass
class Peaks:
    """Largest memory of a program, MiB: in all, and without the pages of mapped files."""

    rss_mib: float = 0.0
    anonymous_mib: float = 0.0

    def see(self, pid: int) -> None:
        """Read a process's memory; an ended process has none."""
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        kib = {
            name: int(value.split()[0])
            for name, _, value in (line.partition(":") for line in lines)
            if name in ("VmRSS", "RssAnon")
        }
        self.rss_mib = max(self.rss_mib, round(kib.get("VmRSS", 0) / 1024, 1))
        self.anonymous_mib = max(self.anonymous_mib, round(kib.get("RssAnon", 0) / 1024, 1))


@dataclass
class Rows:
    """The rows of a replay whose ring doesn't become full."""

    replay: Path
    lost: int = 0
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each, seconds since 1970."""
    _seals: list[tuple[int, int]] = field(default_factory=list)
    _count: int = 0
    _grew: float | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def count(self) -> int:
        """Return how many rows are published; 0 before the replay is created."""
        try:
            return int(np.fromfile(self.replay / "published", np.int64)[0])
        except (OSError, IndexError):
            return 0

    def steps(self) -> int:
        """Return the finished environment steps among them."""
        count = self.count()
        return int(self._mapped(count)["step"][-1]) if count else 0

    def seal(self) -> None:
        """Remember all published rows by a checksum; their pictures, 30 times as large, are left out."""
        count = self.count()
        if count:
            self._seals.append((count, zlib.crc32(self._mapped(count).tobytes())))

    def problems(self) -> list[str]:
        """Return the problems of the rows now."""
        count = self.count()
        found = [f"{self.lost} rows were lost"] if self.lost else []
        if not count:
            return [*found, "there are no rows"]
        rows = self._mapped(count)
        expected = np.where(rows["episode_step"] == 0, 0, 1)
        wrong = np.flatnonzero(np.diff(rows["step"].astype(np.int64), prepend=0) != expected)
        found += [f"rows {wrong[:5].tolist()} count a step that isn't one"] if wrong.size else []
        changed = [at for at, seal in self._seals if at > count or zlib.crc32(rows[:at].tobytes()) != seal]
        return found + ([f"of the first {changed[0]} rows some have changed"] if changed else [])

    def watch(self) -> None:
        """Observe until :meth:`end`, in a thread."""
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Stop observing."""
        self._over.set()

    def pause_after(self, begin: float, end: float) -> tuple[float, float] | None:
        """Return the longest pause that was not over at ``begin`` and began before ``end``; None if there was none."""
        found = [pause for pause in self.pauses if pause[1] > begin and pause[0] < end]
        return max(found, key=lambda pause: pause[1] - pause[0], default=None)

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            count, now = self.count(), time.time()
            self.lost += max(0, self._count - count)
            if count > self._count:
                if self._grew is not None and now - self._grew >= PAUSE_S:
                    self.pauses.append((self._grew, now))
                self._grew = now
            self._count = count

    def _mapped(self, count: int) -> np.ndarray:
        return np.memmap(self.replay / "rows.bin", ROW, "r", shape=(count,))
