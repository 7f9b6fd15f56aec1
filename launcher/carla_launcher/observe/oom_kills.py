"""Reads the kernel's counter of out-of-memory kills. The counter names no process."""

from __future__ import annotations

from pathlib import Path

from carla_run.memory.cgroups import Cgroups, oom_kills

MACHINE = Path("/proc/vmstat")
COUNTERS = ("memory.events", "memory.oom_control")


class OomKills:
    """The kernel's OOM kills in a process's control group.

    Docker's report isn't reliable (docs/facts.md, section 6). A container's counter vanishes with the container, so it
    is read while the container runs. A group without a counter (the root of version 2) uses the machine's counter.
    """

    def __init__(self, pid: int | str = "self", *, own_group: bool = False) -> None:
        """Read the counter; with ``own_group`` (a container's group) earlier kills count as well."""
        group = Cgroups().of(pid)
        files = () if group is None else tuple(group.folder / name for name in COUNTERS)
        self._file = next((file for file in files if oom_kills(file) is not None), MACHINE)
        self._first = 0 if own_group and self._file is not MACHINE else oom_kills(self._file) or 0
        self.rose = False

    def look(self) -> bool:
        """Read the counter; return whether it has risen since the start."""
        self.rose = self.rose or (oom_kills(self._file) or 0) > self._first
        return self.rose
