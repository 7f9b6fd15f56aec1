"""What a process holds of RAM that the kernel can't drop. Owns the reading of ``/proc/PID/status``; judges nothing."""

from __future__ import annotations

from collections.abc import Iterator


def memory_mib(pid: int | None) -> float | None:
    """Return a process's RssAnon + RssShmem in MiB; None where Linux doesn't say.

    Pages of mapped files (the replay) are left out: the kernel drops them when memory runs short (facts.md section 6).
    """
    if pid is None:
        return None
    kib = dict(_kib_lines(pid))
    if "RssAnon" not in kib:
        return None
    return round((kib["RssAnon"] + kib.get("RssShmem", 0)) / 1024, 1)


def _kib_lines(pid: int) -> Iterator[tuple[str, int]]:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:  # noqa: PTH123 – one open a second
            for line in lines:
                name, _, rest = line.partition(":")
                if name in ("RssAnon", "RssShmem"):
                    yield name, int(rest.split()[0])
    except OSError:
        return
