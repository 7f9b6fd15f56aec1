"""Names the state files of a run that exist and can't be read; damaged lines are counted by their reader."""

from __future__ import annotations

from carla_run.heartbeat import read_heartbeat
from carla_run.paths import RunPaths
from carla_run.readers import read_object


def damaged_files(run: RunPaths) -> list[str]:
    """Return a sentence without full stop for each such file."""
    found = ((run.launcher_state, read_object(run.launcher_state)), (run.heartbeat, read_heartbeat(run.heartbeat)))
    return [f"{path.name} can't be read and is left out" for path, content in found if not content and path.exists()]
