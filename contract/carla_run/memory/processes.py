"""What processes hold of memory, and which belong together: read from /proc, cheap enough to ask every second.

Memory that counts is RssAnon + RssShmem, so never pages of mapped files: the kernel drops those when memory runs short
(docs/facts.md, section 6). What several processes share counts in each of them.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
MIB = 2**20
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / MIB


def held_mib(pid: int | None, proc: Path = PROC) -> float | None:
    """Return what a process holds that the kernel can't drop, to a tenth of a MiB.

    None if it is gone, or is the kernel's own; also of a process that there isn't.
    """
    amounts = () if pid is None else amounts_mib(first_page(f"{proc}/{pid}/status"), b"RssAnon", b"RssShmem")
    return round(sum(amounts), 1) if amounts else None


def resident_mib(pid: int, proc: Path = PROC) -> float:
    """Return all that a process has in memory, pages of files included; 0 if it is gone. Half the cost of the above."""
    fields = first_page(f"{proc}/{pid}/statm").split()
    return int(fields[1]) * _PAGE_MIB if len(fields) > 1 else 0.0


def status_mib() -> dict[str, float]:
    """Return all amounts of memory that this process's status names; empty without a /proc."""
    fields = [line.split() for line in first_page("/proc/self/status").splitlines() if line.endswith(b" kB")]
    return {name.decode().rstrip(":"): int(kib) / 1024 for name, kib, _ in fields}


def amounts_mib(text: bytes, *names: bytes) -> list[float]:
    """Return those of the named amounts that a file of ``Name:   123 kB`` lines has."""
    text = b"\n" + text
    starts = [text.find(b"\n" + name + b":") for name in names]
    values = [text[start:].split(None, 2)[1] for start in starts if start >= 0]
    return [int(value) / 1024 for value in values]


def first_page(path: str) -> bytes:
    """Return the first page of a small file; empty if it can't be read. Path.read_bytes takes three times as long."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:  # a process that ended between the two
        return b""
    finally:
        os.close(descriptor)


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
            new += [child for task in tasks for child in _children(f"/proc/{each}/task/{task}/children")]
    return frozenset(found)


def _tasks(pid: int) -> list[str] | None:
    """Return a process's threads: a child belongs to the one that started it. None if the process has gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  a Path a thread otherwise
    except OSError:
        return None


def _children(path: str) -> list[int]:
    """Return a thread's children, however many: the file may be longer than a page."""
    try:
        return [int(child) for child in Path(path).read_bytes().split()]
    except OSError:  # the thread has ended since
        return []
