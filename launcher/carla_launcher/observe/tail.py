"""Reads the new lines of a file that another process appends to. The file may be missing, rotated or truncated."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from carla_run.files import open_to_read
from carla_run.readers import MOST_LINES_BYTES, LinesRead

MAX_BYTES = 2**20
"""Most bytes that one look reads, the newest ones: a program's last lines explain its end."""


class Tail:
    """Returns each complete line once.

    Args:
        path: the file; it need not exist yet.
        from_end: skip the present content, which is of an earlier process.
        most_bytes: most bytes per look.

    Attributes:
        read: counts the damaged lines among those of ``objects``.
    """

    def __init__(self, path: Path, from_end: bool, most_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.read = LinesRead(path.name, lines=None if from_end else 0)
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._partial = b""
        self._open()
        if from_end and self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def look(self) -> list[str]:
        """Return the lines that were completed since the last look, without line ends; invalid bytes are replaced."""
        lines = self._newest()
        if self._replaced():
            self.close()
            self._open()
            lines += self._newest()
        return [line.rstrip("\r") for line in lines]

    def objects(self) -> list[dict[str, Any]]:
        """Return the JSON objects among those lines."""
        return self.read.rows(self.look())

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield all JSON objects that were added since the last look; at most ``MAX_BYTES`` and a line are in memory.

        A file of more than ``MOST_LINES_BYTES`` isn't read.
        """
        if self._file is None:
            self._open()
        self.read.unread = self._size() > MOST_LINES_BYTES
        for lines in () if self.read.unread else self._whole():
            yield from self.read.rows(lines)

    def begins_again(self) -> bool:
        """Return whether the file was truncated, or its name belongs to another one: all of it is new."""
        if self._file is None:
            return False
        return self._replaced() or self._size() < self._file.tell()

    def close(self) -> None:
        """Close the file; the next look opens it at its beginning."""
        if self._file is not None:
            self._file.close()
        self._file, self._partial = None, b""

    def _open(self) -> None:
        try:
            self._file = open_to_read(self.path)
        except OSError:
            self._file = None

    def _replaced(self) -> bool:
        """Return whether the name belongs to another file now."""
        try:
            there = self.path.stat()
        except OSError:
            return False  # between two files, or not there yet
        if self._file is None:
            return True
        ours = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _newest(self) -> list[str]:
        """Return the new lines among the newest ``most_bytes``."""
        if self._file is None:
            return []
        with contextlib.suppress(OSError):  # of a disk that fails
            size, place = self._size(), self._file.tell()
            if size < place:  # truncated, to be written again
                place, self._partial = self._file.seek(0), b""
            if size - place > self._most_bytes:
                self._file.seek(size - self._most_bytes)
                self._file.readline()  # incomplete, so it has no meaning to a reader
                self._partial, self.read.lines = b"", None
        lines = [line for part in self._whole() for line in part]
        self._partial = self._partial[-self._most_bytes :]
        return lines

    def _whole(self) -> Iterator[list[str]]:
        """Yield the lines that have been completed, those of a part at a time."""
        rest = bytearray(self._partial)
        while part := self._part():
            whole, end, last = part.rpartition(b"\n")
            if end:
                lines, rest = rest + whole, bytearray()
                yield lines.decode(errors="replace").split("\n")
            rest += last
        self._partial = bytes(rest)

    def _part(self) -> bytes:
        try:
            return b"" if self._file is None else self._file.read(MAX_BYTES)
        except OSError:
            return b""

    def _size(self) -> int:
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size
