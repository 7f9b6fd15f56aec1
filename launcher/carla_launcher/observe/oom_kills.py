"""Has the kernel killed something for memory? Reads the one counter that says so; it names no process."""

from __future__ import annotations

from pathlib import Path

from carla_run.memory.cgroups import Cgroups, oom_kills

MACHINE = Path("/proc/vmstat")
COUNTERS = ("memory.events", "memory.oom_control")


class OomKills:
    """The kernel's OOM kills in a process's control group.

    Docker's word isn't enough (docs/facts.md, section 6). A container's counter goes with it, so it is
    looked at while it lives. Where the group has no counter (version 2's root), the whole machine's is taken.
    """

    def __init__(self, pid: int | str = "self", *, own_group: bool = False) -> None:
        """Begin to look; with ``own_group`` (a container's) kills before now count as well."""
        group = Cgroups().of(pid)
        files = () if group is None else tuple(group.folder / name for name in COUNTERS)
        self._file = next((file for file in files if oom_kills(file) is not None), MACHINE)
        self._first = 0 if own_group and self._file is not MACHINE else oom_kills(self._file) or 0
        self.rose = False

    def look(self) -> bool:
        """Read the counter; return whether it has ever been above what it was at first."""
        self.rose = self.rose or (oom_kills(self._file) or 0) > self._first
        return self.rose
