"""Reads a run's files even if they are incomplete: a missing file counts as empty, a half-written line as missing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carla_run.files import open_to_read, read_whole

TAIL_BYTES = 16_384


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file is missing or invalid."""
    return object_of(_text(path))


def object_of(text: str) -> dict[str, Any]:
    """Return the object in a JSON text; empty if the text is invalid."""
    value = _json(text)
    return value if isinstance(value, dict) else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of the list in a JSON file; empty if the file is missing or invalid."""
    value = _json(_text(path))
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file, without invalid lines."""
    return [row for line in _text(path).split("\n") if (row := object_of(line))]


def last_lines(path: Path, count: int = 1) -> str:
    """Return the last lines of a log that aren't empty, joined by line ends; empty if there are none."""
    try:
        with open_to_read(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


def inner(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside an object; empty if it is missing or invalid."""
    value = outer.get(key)
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e100:
        return None
    return float(value)


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return a scalar of ``metrics.jsonl`` as (step, value) pairs."""
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
