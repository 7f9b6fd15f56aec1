"""Names the state files of a run that exist and can't be read; damaged lines are counted by their reader."""

from __future__ import annotations

import json
from pathlib import Path

from carla_run.files import read_whole
from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths


def damaged_files(run: RunPaths) -> list[str]:
    """Return a sentence without full stop for each such file."""
    known = {run.launcher_state: _is_object(run.launcher_state), run.heartbeat: read_heartbeat(run.heartbeat)}
    return [
        f"{path.name} can't be read and is left out" for path, found in known.items() if not found and path.exists()
    ]


def _is_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(read_whole(path)), dict)
    except (OSError, ValueError, RecursionError):
        return False
