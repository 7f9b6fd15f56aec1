"""Who can have written a file: what it says is believed only as far as its writers are trusted."""

from __future__ import annotations

import os
from pathlib import Path

OTHERS_WRITE = 0o022


def open_to(path: Path, status: os.stat_result) -> str:
    """Return who but this user can have written a file or changed a folder, a clause; empty if nobody can."""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this"
    if status.st_mode & OTHERS_WRITE:
        return f"others can write {path} (`chmod go-w {path}` ends that)"
    return ""
