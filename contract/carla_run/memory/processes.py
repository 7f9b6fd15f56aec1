"""Reads the memory of processes and process trees from /proc, fast enough for every second.

Only RssAnon + RssShmem count, not pages of mapped files, which the kernel drops when memory runs short (docs/facts.md,
section 6). Memory that several processes share counts in each of them.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
MIB = 2**20
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / MIB


def held_mib(pid: int | None, proc: Path = PROC) -> float | None:
    """Return the memory of a process that the kernel can't drop, in MiB, rounded to 0.1.

    None if ``pid`` is None, or if the process has ended or is a kernel thread.
    """
    amounts = () if pid is None else amounts_mib(first_page(f"{proc}/{pid}/status"), b"RssAnon", b"RssShmem")
    return round(sum(amounts), 1) if amounts else None


def resident_mib(pid: int, proc: Path = PROC) -> float:
    """Return a process's resident memory in MiB, with pages of files; 0 if it has ended. Half the cost of the above."""
    fields = first_page(f"{proc}/{pid}/statm").split()
    return int(fields[1]) * _PAGE_MIB if len(fields) > 1 else 0.0


def status_mib() -> dict[str, float]:
    """Return all amounts in this process's /proc status, in MiB; empty without /proc."""
    fields = [line.split() for line in first_page("/proc/self/status").splitlines() if line.endswith(b" kB")]
    return {name.decode().rstrip(":"): int(kib) / 1024 for name, kib, _ in fields}


def amounts_mib(text: bytes, *names: bytes) -> list[float]:
    """Return the named amounts in a file of ``Name:   123 kB`` lines, in MiB; missing ones are left out."""
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
    except OSError:  # the process ended between the two calls
        return b""
    finally:
        os.close(descriptor)


def tree(pid: int) -> frozenset[int]:
    """Return the ids of a process and all its descendants; empty if it has ended.

    Reads only the files of these processes. In a container with ``init: true`` every process except those of ``docker
    exec`` descends from its first one.
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
    """Return a process's threads, since a child belongs to the thread that started it. None if it has ended."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  a Path a thread otherwise
    except OSError:
        return None


def _children(path: str) -> list[int]:
    """Return a thread's children; the file may be longer than a page."""
    try:
        return [int(child) for child in Path(path).read_bytes().split()]
    except OSError:  # the thread has ended since
        return []
