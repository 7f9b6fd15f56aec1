"""Writing a file so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write to a temporary name beside it, to the disk, then rename.

    Raises:
        OSError: it can't be written; the old file stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
