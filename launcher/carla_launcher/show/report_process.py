"""Writes the report in a child process, so that the launcher never loads matplotlib and survives its failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from carla_run.paths import RunPaths

LIMIT_S = 120.0
"""Time limit. A night's report takes seconds, more on a busy machine or when matplotlib first builds its font cache."""
PROGRAM = (sys.executable, "-m", "carla_launcher.show.report")
COMPARING = (sys.executable, "-m", "carla_launcher.show.comparison")


def write_report(run: RunPaths, program: tuple[str, ...] = PROGRAM, limit_s: float = LIMIT_S) -> str:
    """Write ``report.html`` and ``report.md``; return one line if that failed, otherwise ""."""
    return _written((*program, str(run.path)), limit_s)


def write_comparison(page: Path, one: RunPaths, other: RunPaths) -> str:
    """Write a page that compares two runs; return one line if that failed, otherwise ""."""
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
        return f"the report took longer than {limit_s:g} s and was cancelled"
    except OSError as error:
        return f"the report can't be written: {error.strerror}"
    if ended.returncode == 0:
        return ""
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"the report wasn't written (exit code {ended.returncode})"
