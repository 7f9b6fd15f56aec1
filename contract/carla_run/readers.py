"""Reading a run's files however torn they are: a missing file is an empty one, a half-written last line is no line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carla_run.files import open_to_read, read_whole

TAIL_BYTES = 16_384


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; empty if it is missing, torn or something else."""
    return object_of(_text(path))


def object_of(text: str) -> dict[str, Any]:
    """Return the object that a text is in JSON; empty if it is torn or something else."""
    value = _json(text)
    return value if isinstance(value, dict) else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a JSON file's list; empty if it is missing, torn or something else."""
    value = _json(_text(path))
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; lines that aren't whole objects are left out."""
    return [row for line in _text(path).split("\n") if (row := object_of(line))]


def last_lines(path: Path, count: int = 1) -> str:
    """Return the last lines of a log that say something, joined by line ends; empty if there are none."""
    try:
        with open_to_read(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


def inner(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object within an object; empty if it is missing or something else."""
    value = outer.get(key)
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e100:
        return None
    return float(value)


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return a scalar of ``metrics.jsonl`` over its steps; rows without it are left out."""
    pairs = [(number(row.get("step")), number(row.get(name))) for row in rows]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _text(path: Path) -> str:
    try:
        return read_whole(path).decode(errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
