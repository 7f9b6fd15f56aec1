"""Common output of the benchmarks: the machine, the progress, and summaries of figures; and their end."""

from __future__ import annotations

import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from carla_run.exits import TERMINATED

Cap = Literal["AVX2", "AVX512_CORE"]
_CAPS = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "AVX512_CORE": {"ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}
LINE_S = 10.0
"""Seconds between two lines without a terminal."""
T = TypeVar("T")
CPUINFO = Path("/proc/cpuinfo")
MATRIX_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine(*packages: str) -> dict[str, Any]:
    """Return processor, its matrix instructions, cores, load average, and the versions of Python and ``packages``."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    return {
        "processor": facts.get("model name") or platform.processor() or platform.machine(),
        "instructions": [name for name in MATRIX_INSTRUCTIONS if name in flags],
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
    }


def hold_to(isa: Cap | None) -> None:
    """Limit oneDNN, ATen and MKL to an instruction set, in processes that import torch from now on."""
    if isa is not None:
        os.environ |= {"ONEDNN_MAX_CPU_ISA": isa, **_CAPS[isa]}


def counted(work: Sequence[T], what: str) -> Iterator[T]:
    """Yield the parts of a long work, and print each one's number on stderr; nothing runs during a measurement."""
    on_terminal, said_s = sys.stderr.isatty(), -LINE_S
    for number, part in enumerate(work, 1):
        words = f"{what} {number} of {len(work)}"
        if on_terminal:
            print(f"\r{words} ", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - said_s >= LINE_S:
            said_s = time.monotonic()
            print(words, file=sys.stderr, flush=True)
        yield part
    if on_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, lowest and highest, to two decimals."""
    figures = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 2) for name, value in figures.items()}


def rss_mib(pid: int) -> float:
    """Return a process's memory in RAM (MiB)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def end_in_order() -> None:
    """Have SIGTERM end this process as an exception does, so that what it started ends too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))


def leave(code: int = 0) -> NoReturn:
    """End this process at once: CARLA's client can abort one that leaves in order with streams open."""
    sys.stdout.flush()
    os._exit(code)
