"""The new lines of a file that another process adds to; rotated, truncated or missing, it is never waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from carla_run.files import open_to_read
from carla_run.readers import object_of

MOST_BYTES = 2**20
"""Of a log in one look. Of what is more, the newest part: what a program says last explains its end."""


class Tail:
    """Yields each whole line once.

    Args:
        path: the file; it need not exist yet.
        from_end: what it holds already is of a process that is gone, and left out.
        most_bytes: of one look; None: everything is read.
    """

    def __init__(self, path: Path, from_end: bool, most_bytes: int | None = MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._partial = b""
        self._open()
        if from_end and self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def look(self) -> list[str]:
        """Return the lines that were finished since the last look, without their ends; odd bytes are replaced."""
        lines: list[bytes] = []
        if self._file is not None:
            self._read(self._file, lines)
        if self._replaced():
            self.close()
            self._open()
            if self._file is not None:
                self._read(self._file, lines)
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects among those lines: what is no JSON object is left out."""
        return [row for line in self.look() if (row := object_of(line))]

    def close(self) -> None:
        """Let go of the file; a next look opens it from its beginning."""
        if self._file is not None:
            self._file.close()
        self._file, self._partial = None, b""

    def _open(self) -> None:
        try:
            self._file = open_to_read(self.path)
        except OSError:
            self._file = None

    def _replaced(self) -> bool:
        """Return whether another file bears the name now."""
        try:
            there = self.path.stat()
        except OSError:
            return False  # between two files, or not there yet
        if self._file is None:
            return True
        ours = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _read(self, file: BinaryIO, lines: list[bytes]) -> None:
        try:
            size, place = os.fstat(file.fileno()).st_size, file.tell()
            if size < place:  # cut down to be written again
                place, self._partial = file.seek(0), b""
            if self._most_bytes is not None and size - place > self._most_bytes:
                place = file.seek(size - self._most_bytes)
                self._partial = b""  # the first line that follows is a torn one; nothing reads a meaning into it
            read = file.read(size - place)
        except OSError:
            return
        *whole, partial = (self._partial + read).split(b"\n")
        lines += whole
        self._partial = partial if self._most_bytes is None else partial[-self._most_bytes :]
