"""What a command is told of memory that is still held for it: a file, named in its environment.

Owns the file's form. A program that asks what is free before it starts would otherwise see a step of what it may have.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

VARIABLE = "MEMORY_HELD_FILE"


def write(path: Path, what: str, mib: float) -> None:
    """Replace the file: ``{"gpu": 0, "held_mib": 1792}``, ``gpu`` null for RAM; a full disk is no reason to fail."""
    new = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        new.write_text(
            json.dumps({"gpu": None if what == "ram" else int(what), "held_mib": round(mib)}), encoding="ascii"
        )
        new.replace(path)
