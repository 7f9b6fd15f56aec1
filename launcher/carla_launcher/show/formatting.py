"""Formats figures for users: times, durations, amounts of memory, counts. Pure."""

from __future__ import annotations

import time

from carla_launcher.observe.pools import PoolKind

CAUSES = {
    "simulator_out_of_vram": "simulator out of VRAM",
    "simulator_crash": "simulator crashed",
    "simulator_host_oom": "simulator killed for memory",
    "simulator_hang": "simulator hung",
    "simulator_not_ready": "simulator not ready",
    "agent_cuda_oom": "agent out of VRAM",
    "agent_host_oom": "agent out of RAM",
    "agent_disk_full": "agent out of disk",
    "agent_crash": "agent crashed",
    "agent_hang": "agent hung",
    "collector_hang": "collector hung",
    "foreign_process": "foreign process took memory",
    "pressure": "memory short",
    "gpu_lost": "GPU lost",
    "container_lost_gpu": "agent's container lost the GPU",
    "out_of_band": "unexpected size",
    "restore": "memory was free again",
    "launcher_gone": "launcher killed",
}
"""Names of ``Cause`` values, and of other reasons with which an incident may begin."""


def cause(value: str) -> str:
    """Return a cause's name for users."""
    return CAUSES.get(value, value.replace("_", " "))


def kind_of(pool: str) -> str:
    """Return a pool's name for users: ``VRAM of GPU 0``, ``RAM``, ``RAM of agent``, ``Disk``."""
    kind, _, whose = pool.partition(":")
    name = {PoolKind.VRAM.value: "VRAM", PoolKind.RAM.value: "RAM", PoolKind.DISK.value: "Disk"}.get(kind, pool)
    return f"{name} of {'GPU ' if kind == PoolKind.VRAM.value else ''}{whose}" if whose else name


def clock(seconds: float) -> str:
    """Return ``1:02:03``: a moment since the start, or how long a run took."""
    whole = int(min(max(seconds, 0.0), 1e12))
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def time_of_day(moment_s: float | None) -> str:
    """Return ``02:13:45``, in local time, with the date if it isn't today; empty for an invalid time."""
    said = seconds_as_date(moment_s)
    return said.removeprefix(time.strftime("%Y-%m-%d "))


def seconds_as_date(since_1970_s: float | None) -> str:
    """Return ``2026-11-22 02:13:45``, in local time; empty for an invalid time."""
    if since_1970_s is None or not 0 < since_1970_s < 32_503_680_000:  # the year 3000
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since_1970_s))


def span(seconds: float) -> str:
    """Return a duration as ``4.2 s``, ``42 s``, ``4 min 05 s`` or ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(min(seconds, 1e12))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def grouped(count: float) -> str:
    """Return a whole number with narrow no-break spaces between groups of three digits."""
    return f"{count:,.0f}".replace(",", "\u202f")


def mib(amount: float | None) -> str:
    """Return an amount of memory; a dash if unknown."""
    return "–" if amount is None else f"{grouped(amount)} MiB"


def counted(count: int, one: str) -> str:
    """Return ``1 fault``, ``2 faults``, ``no fault``."""
    if count == 0:
        return f"no {one}"
    return f"{grouped(count)} {one if count == 1 else one + 's'}"


def listed(parts: list[str]) -> str:
    """Return ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def capital(sentence: str) -> str:
    """Return a sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def run_ended(reason: object, code: object) -> str:
    """Return the sentence for a run whose launcher has ended: why, and its exit code."""
    return f"The run ended: {reason}. The launcher's exit code is {code}."
