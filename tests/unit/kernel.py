"""A /proc and a hierarchy of memory control groups as two versions of the kernel write them, in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MIB = 2**20
UNLIMITED_V1 = 9223372036854771712
KERNEL_MIB = 5
"""The kernel's own pages that can't be dropped, which version 2 counts in each group of this double."""

_V2_MOUNT = "24 23 0:22 {root} {point} rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
_V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {root} {point} rw,relatime shared:12 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"""
_V1_GROUPS = """\
9:name=systemd:{group}
5:devices:{group}
4:memory:{group}
2:cpu,cpuacct:{group}
0::/system.slice"""


class Version(Enum):
    """Mounts and a process's groups."""

    V1 = (_V1_MOUNTS, _V1_GROUPS)
    V2 = (_V2_MOUNT, "0::{group}")
    BOTH = (
        _V1_MOUNTS.replace("rw,memory", "rw,pids").replace("/sys/fs/cgroup/unified", "{point}"),
        _V1_GROUPS.replace("4:memory:", "4:pids:"),
    )
    """Version 2 has the memory controller beside a version 1 that hasn't."""


@dataclass(frozen=True)
class Level:
    """One group's memory, MiB, with all below it; None: no limit, no counter of kills."""

    limit: int | None
    held: int
    shared: int = 0
    files: int = 0
    kills: int | None = None


class Kernel:
    """The files; ``point`` is where the hierarchy is mounted, which may begin at ``root``."""

    def __init__(self, folder: Path, version: Version = Version.V2, root: str = "/") -> None:
        self.proc, self.point, self._version = folder / "proc", folder / "cgroup", version
        (self.proc / "self").mkdir(parents=True)
        mounts = version.value[0].format(root=root, point=self.point)
        (self.proc / "self" / "mountinfo").write_text(mounts + "\n")

    def memory(self, total: int, available: int) -> None:
        """Write what the machine has, MiB."""
        words = f"MemTotal: {total * 1024} kB\nMemFree: 10 kB\nMemAvailable: {available * 1024} kB\n"
        (self.proc / "meminfo").write_text(words)

    def process(self, pid: int | str, group: str) -> None:
        """Put a process into a group."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(self._version.value[1].format(group=group) + "\n")

    def level(self, path: str, level: Level) -> None:
        """Write a group's files."""
        limit, held = level.limit, level.held * MIB
        shared, files = level.shared * MIB, level.files * MIB
        if self._version is Version.V1:
            stat = (
                f"cache {MIB}\nrss {MIB}\nshmem 0\nmapped_file 4096\nhierarchical_memory_limit {UNLIMITED_V1}\n"
                f"total_cache {files + shared}\ntotal_rss {held}\ntotal_shmem {shared}\ntotal_mapped_file {files}"
            )
            most = UNLIMITED_V1 if limit is None else limit * MIB
            events = f"oom_kill_disable 0\nunder_oom 0\n{_kills(level)}"
            self.group(path, limit_in_bytes=most, stat=stat, oom_control=events)
            return
        stat = (
            f"anon {held}\nfile {files + shared}\nkernel {9 * MIB}\nkernel_stack {MIB}\npagetables {2 * MIB}\n"
            f"sec_pagetables 0\npercpu {MIB}\nsock 0\nvmalloc 0\nshmem {shared}\nzswap 0\nzswapped 0\n"
            f"file_mapped {files}\nslab_reclaimable {4 * MIB}\nslab_unreclaimable {MIB}\nslab {5 * MIB}\npgfault 12345"
        )
        events = f"low 0\nhigh 0\nmax 31\noom 2\n{_kills(level)}"
        self.group(path, max="max" if limit is None else limit * MIB, stat=stat, events=events)

    def group(self, path: str, **files: object) -> None:
        """Write a group's files by name, ``memory.`` left out."""
        folder = self.point / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"memory.{name}").write_text(f"{content}\n")


def _kills(level: Level) -> str:
    return "" if level.kills is None else f"oom_kill {level.kills}\noom_group_kill 0\n"
