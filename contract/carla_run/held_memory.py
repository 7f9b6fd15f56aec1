"""The file by which a command learns how much memory is still held for it: ``{"gpu": 0, "held_mib": 1792}``.

Its environment names the file. A program that asks what is free before it starts would otherwise see only a part of
what it may have.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from carla_run.files import write_whole
from carla_run.readers import read_object

VARIABLE = "MEMORY_HELD_FILE"


def write_held(path: Path, gpu: int | None, mib: float) -> None:
    """Replace the file; ``gpu`` is None for RAM. A full disk is no reason to fail."""
    with contextlib.suppress(OSError):
        write_whole(path, json.dumps({"gpu": gpu, "held_mib": round(mib)}), durable=False)


def read_held_mib(*, of_gpu: bool) -> int:
    """Return what is held for this process, of a GPU or of RAM; 0 where no file says."""
    said = read_object(Path(os.environ.get(VARIABLE, "")))
    mib = said.get("held_mib")
    return mib if isinstance(mib, int) and (said.get("gpu") is not None) == of_gpu else 0
