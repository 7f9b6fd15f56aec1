"""Reads a run's files even if they are incomplete: a missing file counts as empty, a half-written line as missing.

A damaged line is left out and counted. Lines have no checksum, so damage that still is JSON can't be told.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carla_run.files import open_to_read, read_whole

TAIL_BYTES, MOST_LINES_BYTES = 16_384, 1 << 30
REPLACED = "\ufffd"
"""Stands for bytes that aren't UTF-8. No writer of ours writes it: JSON escapes it."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file is missing or invalid."""
    return object_of(read_text(path))


def object_of(text: str) -> dict[str, Any]:
    """Return the object in a JSON text; empty if the text is invalid."""
    value = _json(text)
    return value if isinstance(value, dict) else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of the list in a JSON file; empty if the file is missing or invalid."""
    value = _json(read_text(path))
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


@dataclass
class LinesRead:
    """Parses the lines of one JSON-lines file, and counts the damaged ones.

    Attributes:
        name: of the file.
        damaged: number of lines that aren't a JSON object in UTF-8.
        first: number of the first of them, counted from 1; 0 if none is damaged, or if lines were passed over.
        lines: number of lines read so far; None if some were passed over.
        unread: the file is too large to be read.
    """

    name: str
    damaged: int = 0
    first: int = 0
    lines: int | None = 0
    unread: bool = False

    def rows(self, lines: Iterable[str]) -> list[dict[str, Any]]:
        """Return the objects of the next lines, whose invalid bytes were replaced; empty lines count as none."""
        found = []
        for line in lines:
            self.lines = None if self.lines is None else self.lines + 1
            row = None if REPLACED in line else _json(line)
            if isinstance(row, dict):
                found.append(row)
            elif line.strip():
                self.first = self.first if self.damaged else self.lines or 0
                self.damaged += 1
        return found

    def __str__(self) -> str:
        """Return what was left out, as a sentence without full stop; empty if nothing was."""
        if self.unread:
            return f"{self.name} has more than {MOST_LINES_BYTES >> 20} MiB and is left out"
        if not self.damaged:
            return ""
        what = "1 line" if self.damaged == 1 else f"{self.damaged} lines"
        where = f" (first: line {self.first})" if self.first else ""
        return f"{what} of {self.name} {'is' if self.damaged == 1 else 'are'} damaged{where} and left out"


def read_lines(path: Path, read: LinesRead | None = None) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file, without damaged lines, which ``read`` counts.

    A last line without its end is being written, or was when its writer was killed: it isn't damaged.
    """
    read = read or LinesRead(path.name)
    try:
        text = read_whole(path, MOST_LINES_BYTES).decode(errors="replace")
    except OSError as error:
        text, read.unread = "", error.errno == errno.EFBIG
    whole, _, last = text.rpartition("\n")
    return [*read.rows(whole.split("\n")), *LinesRead(path.name).rows([last])]


def last_lines(path: Path, count: int = 1, after: int = 0) -> str:
    """Return the last lines of a log, from byte ``after`` on, that aren't empty, joined by line ends; empty if none."""
    return "\n".join([line.strip() for line in tail(path, after=after).splitlines() if line.strip()][-count:])


def tail(path: Path, most_bytes: int = TAIL_BYTES, after: int = 0) -> str:
    """Return the end of a text, of at most so many bytes and from byte ``after`` on; empty if it can't be read."""
    try:
        with open_to_read(path) as file:
            file.seek(max(after, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def inner(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside an object; empty if it is missing or invalid."""
    value = outer.get(key)
    return value if isinstance(value, dict) else {}


def items(outer: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list inside an object; empty if it is missing or invalid."""
    value = outer.get(key)
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e100:
        return None
    return float(value)


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return those values of a JSON object that are finite numbers."""
    return {name: found for name, value in row.items() if (found := number(value)) is not None}


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return a scalar of ``metrics.jsonl`` as (step, value) pairs."""
    pairs = [(number(row.get("step")), number(row.get(name))) for row in rows]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def read_text(path: Path) -> str:
    """Return a text, whose invalid bytes are replaced; empty if it can't be read."""
    try:
        return read_whole(path).decode(errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
