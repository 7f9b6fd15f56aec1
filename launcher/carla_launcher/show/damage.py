"""What of a run's files was left out: state files that can't be read, and the damaged lines that readers counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from carla_launcher import hooks
from carla_run.files import read_whole
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import LinesRead


def left_out(run: RunPaths, reads: Iterable[LinesRead]) -> list[str]:
    """Return a sentence without full stop for each such file."""
    known = {run.launcher_state: _is_object(run.launcher_state), run.heartbeat: read_heartbeat(run.heartbeat)}
    return [*unreadable(known), *filter(None, map(str, reads)), *hooks.damaged(run)]


def unreadable(known: Mapping[Path, object]) -> list[str]:
    """Return a sentence without full stop for each file that is there and in which nothing was found."""
    return [
        f"{path.name} can't be read and is left out" for path, found in known.items() if not found and path.exists()
    ]


def _is_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(read_whole(path)), dict)
    except (OSError, ValueError, RecursionError):
        return False
