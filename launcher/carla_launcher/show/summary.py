"""The last lines of ``up``: how the run ended, the paths of its results, and what its driver learned."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from carla_launcher.decide.decisions import Ending
from carla_launcher.show.lessons import lessons
from carla_run.exits import Exit
from carla_run.paths import RUNS, RunPaths
from carla_run.readers import read_objects


def print_summary(run: RunPaths, ending: Ending, say: Callable[[str], None], command: str = "up") -> None:
    """Print how the run ended, the paths of its results, and the launcher's command that resumes it."""
    say(f"the run ended with exit code {int(ending.code)}: {ending.reason}")
    tables = [run.evaluation_json, run.evaluation_csv]
    found: list[tuple[str, list[Path]]] = [
        ("run directory", [run.path]),
        ("evaluation", [path for path in tables if path.exists()]),
        ("results", [path for path in [run.results] if path.exists()]),
        ("videos", sorted(run.videos.glob("*.mp4"))),
        ("report", [path for path in [run.report] if path.exists()]),
    ]
    for label, paths in found:
        if paths:
            say(f"  {label:<14}{', '.join(str(path) for path in paths)}")
    if ending.code == Exit.FINISHED:
        named = shlex.join((run.path.name, *_where(run)))
        for label, sentence in lessons(read_objects(run.evaluation_json), named, _program()):
            say(f"  {label:<14}{sentence}")
    if ending.code == Exit.STOPPED and command:
        say(f"  {'resume with':<14}{_program()} {resuming(run, command)}")


def resuming(run: RunPaths, command: str) -> str:
    """Return the words after the launcher's name that resume a run."""
    return shlex.join((command, *_where(run), "--run-name", run.path.name, "--resume"))


def _where(run: RunPaths) -> tuple[str, ...]:
    return () if run.path.parent == RUNS else ("--runs-dir", str(run.path.parent))


def _program() -> str:
    """Return the command of this launcher, from the current folder."""
    called = Path(sys.argv[0])
    if called.suffix != ".py":  # the installed command
        return shlex.quote(called.name if shutil.which(called.name) == str(called) else _from_here(called))
    python = Path(sys.executable)
    return shlex.join((_from_here(python) if python.is_relative_to(Path.cwd()) else "python", sys.argv[0]))


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
