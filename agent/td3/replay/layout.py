"""What a replay's directory holds: which files, how large, of what rows; and ``replay.json``, which says so.

Owns the row's fields, the files' names and the layout file, whose replacement is the one instant at which a ring comes
to be or becomes another one. Maps nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from agent.td3.replay.frames import ACTION, BLOCK, SIDE, SIDES, VECTOR, frame_shape
from contract.exits import Exit, ExitError

ROW = np.dtype(
    [
        ("step", "<i8"),  # finished transitions ever, this row's included
        ("vector", "<f4", VECTOR),
        ("action", "<f4", ACTION),
        ("reward", "<f4"),
        ("episode_step", "<u4"),  # 0 for the episode's first observation
        ("terminated", "u1"),
        ("truncated", "u1"),
        ("unused", "V2"),  # keeps the rows 8-byte aligned
    ]
)
META = "replay.json"
PUBLISHED = "published"
_FIXED = {"version": 1, "vector": VECTOR, "action": ACTION, "row_bytes": ROW.itemsize}


class ReplayError(ExitError):
    """A replay that can't be used; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Layout:
    """What one ring is made of."""

    capacity: int
    """Rows that fit; row r lies in slot r % capacity."""
    side: int = SIDE
    """Pixels of a frame, both ways."""
    planes: int = 1
    """Of a frame."""
    first: int = 0
    """The oldest row that may be drawn: those before it were not taken along when the ring was resized."""
    generation: int = 0
    """How often it was resized: each time into files of their own, beside the ones that count until then."""

    @property
    def frame_bytes(self) -> int:
        """Of one frame."""
        return prod(frame_shape(self.side, self.planes))

    @property
    def arrays(self) -> dict[str, int]:
        """The bytes of frames and rows, by file name, in this order."""
        number = f".{self.generation}" if self.generation else ""
        return {
            f"frames{number}.u8": self.capacity * self.frame_bytes,
            f"rows{number}.bin": self.capacity * ROW.itemsize,
        }

    @property
    def files(self) -> dict[str, int]:
        """The bytes of all files: ``arrays``, then the count of rows ever published, which no generation changes."""
        return {**self.arrays, PUBLISHED: 8}

    def write(self, directory: Path) -> None:
        """Make this the ring that counts: durably, and at one instant.

        Raises:
            OSError: it can't be written, and whatever counted before still does.
        """
        temporary = directory / f"{META}.tmp"
        resized = {"first": self.first, "generation": self.generation} if self.generation else {}
        with temporary.open("w", encoding="utf-8") as meta:
            json.dump({"capacity": self.capacity, **_expected(self.side, self.planes), **resized}, meta)
            meta.flush()
            os.fsync(meta.fileno())
        temporary.replace(directory / META)

    @classmethod
    def read(cls, directory: Path) -> Layout:
        """Return the layout, once it and the files prove to be ours and whole.

        Raises:
            ReplayError: there is none, it can't be read, or it isn't this version's.
        """
        try:
            meta = json.loads((directory / META).read_text(encoding="utf-8"))
            across, _, depth = meta["frame"]
            side, planes = BLOCK * across, max(1, depth // BLOCK**2)
            counts = [int(meta.pop("capacity")), *(int(meta.pop(name, 0)) for name in ("first", "generation"))]
            found = cls(counts[0], side if side in SIDES else SIDE, planes, *counts[1:])
            whole = all((directory / name).stat().st_size == size for name, size in found.files.items())
        except FileNotFoundError as error:
            raise ReplayError(f"{directory}: holds no replay ({error.filename} is missing).") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReplayError(f"{directory / META}: can't be read ({error}); choose another run directory.") from None
        if meta != _expected(found.side, found.planes) or not whole:
            raise ReplayError(_unusable(directory, meta, found))
        return found


def bytes_for(capacity: int, side: int = SIDE, planes: int = 1) -> int:
    """Return the bytes on disk, and in RAM once all of it has been touched, of a ring of this many rows."""
    return sum(Layout(capacity, side, planes).files.values())


def _expected(side: int, planes: int) -> dict[str, Any]:
    return {**_FIXED, "frame": list(frame_shape(side, planes))}


def _unusable(directory: Path, meta: dict[str, Any], found: Layout) -> str:
    expected = _expected(found.side, found.planes)
    reason = "its files are cut short" if meta == expected else f"its layout is {meta}, expected {expected}"
    return f"{directory}: this replay can't be used, {reason}: choose another run directory."
