"""The report, written by a process of its own: the launcher never loads what draws it, and outlives what befalls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from carla_run.paths import RunPaths

LIMIT_S = 120.0
"""A night's report takes seconds; on a machine that is busy, or sets matplotlib's fonts up for the first time, more."""
PROGRAM = (sys.executable, "-m", "carla_launcher.show.report")
COMPARING = (sys.executable, "-m", "carla_launcher.show.comparison")


def write_report(run: RunPaths, program: tuple[str, ...] = PROGRAM, limit_s: float = LIMIT_S) -> str:
    """Write ``report.html`` and ``report.md``; return why that failed, one line, or "" if it didn't."""
    return _written((*program, str(run.path)), limit_s)


def write_comparison(page: Path, one: RunPaths, other: RunPaths) -> str:
    """Write a page with two runs side by side; return why that failed, one line, or "" if it didn't."""
    return _written((*COMPARING, str(page), str(one.path), str(other.path)), LIMIT_S)


def _written(command: tuple[str, ...], limit_s: float) -> str:
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the launcher
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the report took longer than {limit_s:g} s and was given up"
    except OSError as error:
        return f"the report can't be written: {error.strerror}"
    if ended.returncode == 0:
        return ""
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"the report wasn't written (exit code {ended.returncode})"
