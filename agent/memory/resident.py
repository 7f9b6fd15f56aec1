"""What a process holds of RAM that the kernel can't drop. Owns the reading of ``/proc/PID/status``; judges nothing."""

from __future__ import annotations

import os
from pathlib import Path


def memory_mib(pid: int | None) -> float | None:
    """Return a process's RssAnon + RssShmem in MiB; None where Linux doesn't say.

    Pages of mapped files (the replay) are left out: the kernel drops them when memory runs short (facts.md section 6).
    """
    if pid is None:
        return None
    held = status_mib(pid)
    return None if "RssAnon" not in held else round(held["RssAnon"] + held.get("RssShmem", 0.0), 1)


def status_mib(pid: int | None = None) -> dict[str, float]:
    """Return all amounts of memory that a process's status names, in MiB; of this one without a pid.

    Empty where there is no such process, or no Linux.
    """
    try:
        text = Path(f"/proc/{os.getpid() if pid is None else pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    fields = [line.split() for line in text.splitlines() if line.endswith(" kB")]
    return {name.rstrip(":"): int(kib) / 1024 for name, kib, _ in fields}
