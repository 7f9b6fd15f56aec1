"""The objects of a JSON-lines file to which another process adds: each once, however often is looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.readers import object_of


class AppendedLines:
    """Gives what is new; a line is only one when its end is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def look(self) -> list[dict[str, Any]]:
        """Return the objects that are new since the last look; a file that shrank is read from its beginning."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._place:
                    self._place = 0
                file.seek(self._place)
                new = file.read()
        except OSError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._place += len(whole)
        return [row for line in whole.decode(errors="replace").split("\n") if (row := object_of(line))]
