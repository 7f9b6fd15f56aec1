"""The last lines of ``up``: how the run ended, and where what it left lies."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from contract.exits import Exit
from contract.paths import RunPaths
from launcher.decide.decisions import Ending


def tell(run: RunPaths, ending: Ending, say: Callable[[str], None]) -> None:
    """Say how the run ended, and where what it left lies."""
    say(f"the run ended with exit code {int(ending.code)}: {ending.reason}")
    tables = [run.evaluation_json, run.evaluation_csv]
    found: list[tuple[str, list[Path]]] = [
        ("run directory", [run.path]),
        ("evaluation", [path for path in tables if path.exists()]),
        ("videos", sorted(run.videos.glob("*.mp4"))),
        ("report", [path for path in [run.report] if path.exists()]),
    ]
    for label, paths in found:
        if paths:
            say(f"  {label:<14}{', '.join(str(path) for path in paths)}")
    if ending.code == Exit.STOPPED:
        words = ("up", "--runs-dir", str(run.path.parent), "--run-name", run.path.name, "--resume")
        say(f"  go on with    {shlex.join(words)}")
