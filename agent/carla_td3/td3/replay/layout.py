"""Layout of a replay's directory: its files, their sizes and rows. ``index`` reads and writes its description.

Owns the row's fields and the files' names. Maps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from carla_run import formats
from carla_run.exits import Exit, ExitError
from carla_td3.config import EnvironmentConfig
from carla_td3.td3.replay.frames import ACTION, BLOCK, PRIVILEGED, SIDE, SIDES, VECTOR, frame_shape

ROW = np.dtype(
    [
        ("step", "<i8"),  # finished transitions ever, this row's included
        ("vector", "<f4", VECTOR),
        ("action", "<f4", ACTION),
        ("reward", "<f4"),
        ("episode_step", "<u4"),  # 0 for the episode's first observation
        ("terminated", "u1"),
        ("truncated", "u1"),
        ("checksum", "<u2"),  # see the module of this name; 0 in rows of earlier versions
    ]
)
PUBLISHED = "published"
_FIXED = {"vector": VECTOR, "action": ACTION}


class ReplayError(ExitError):
    """A replay that can't be used; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def row_type(privileged: int = 0) -> np.dtype[np.void]:
    """Return a row's fields, 8-byte aligned: those of ``ROW``, then the privileged numbers, if any."""
    if not privileged:
        return ROW
    names = ROW.names or ()
    formats = [*(ROW[name] for name in names), np.dtype(("<f4", (privileged,)))]
    offsets = [*(ROW.fields[name][1] for name in names), ROW.itemsize]  # type: ignore[index]
    size = ROW.itemsize + 4 * (privileged + privileged % 2)
    return np.dtype({"names": [*names, "privileged"], "formats": formats, "offsets": offsets, "itemsize": size})


@dataclass(frozen=True)
class Layout:
    """Layout of one ring."""

    capacity: int
    """Number of rows; row r is in slot r % capacity."""
    side: int = SIDE
    """Pixels of a frame's side."""
    first: int = 0
    """The oldest row that may be drawn; rows before it were dropped when the ring was resized."""
    generation: int = 0
    """Number of resizings. Each one writes new files beside the ones in use."""
    privileged: int = 0
    """Privileged numbers per row, which the actor never sees; 0 means that there is no such column."""
    planes: int = 1
    """Planes per frame."""

    @property
    def row(self) -> np.dtype[np.void]:
        """Fields of a row."""
        return row_type(self.privileged)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return prod(frame_shape(self.side, self.planes))

    @property
    def arrays(self) -> dict[str, int]:
        """Bytes of frames and rows, by file name, in this order."""
        number = f".{self.generation}" if self.generation else ""
        return {
            f"frames{number}.u8": self.capacity * self.frame_bytes,
            f"rows{number}.bin": self.capacity * self.row.itemsize,
        }

    @property
    def files(self) -> dict[str, int]:
        """Bytes of all files: ``arrays``, then the count of published rows, which no resizing changes."""
        return {**self.arrays, PUBLISHED: 8}

    def plain(self) -> dict[str, Any]:
        """Return what describes this layout, as plain data for JSON."""
        resized = {"first": self.first, "generation": self.generation} if self.generation else {}
        return {"capacity": self.capacity, **_expected(self), **resized}

    @classmethod
    def of(cls, directory: Path, plain: Mapping[str, Any]) -> Layout:
        """Return the layout that this describes, after checking that it and the files are complete and of this version.

        Raises:
            ReplayError: its files don't fit it; a sentence without what to do.
            FormatError: another version of this program wrote it.
            FileNotFoundError: a file is missing.
            OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError: it is no description.
        """
        meta = dict(plain)
        formats.REPLAY.require(directory, meta["version"])
        across, _, depth = meta["frame"]
        side, planes = BLOCK * across, max(1, depth // BLOCK**2)
        found = cls(
            int(meta.pop("capacity")),
            side if side in SIDES else SIDE,
            first=int(meta.pop("first", 0)),
            generation=int(meta.pop("generation", 0)),
            privileged=int(meta.get("privileged", 0)),
            planes=planes,
        )
        if meta != (expected := _expected(found)):
            raise ReplayError(f"{directory}: this replay can't be used, its layout is {meta}, expected {expected}.")
        for name, size in found.files.items():
            if (has := (directory / name).stat().st_size) != size:
                raise ReplayError(_of_another_size(directory / name, has, size))
        return found

    def require_privileged(self, directory: Path, privileged: int) -> None:
        """Refuse a ring whose rows have another number of privileged numbers: they can't be added afterwards.

        Raises:
            ReplayError: in one sentence.
        """
        if self.privileged != privileged:
            set_it = f"set environment.privileged to {str(bool(self.privileged)).lower()}, or "
            raise ReplayError(
                f"{directory}: a row of this replay holds {self.privileged} privileged numbers, the configuration asks "
                f"for {privileged}: {'' if self.privileged and privileged else set_it}choose another directory "
                "(demonstrations: record them again)."
            )


def privileged_numbers(environment: EnvironmentConfig) -> int:
    """Return the number of privileged numbers per row in this environment; 0 for none."""
    return PRIVILEGED if environment.privileged else 0


def bytes_for(capacity: int, side: int = SIDE, privileged: int = 0, planes: int = 1) -> int:
    """Return the bytes of a ring of this many rows, on disk, and in RAM once all of it has been touched."""
    return sum(Layout(capacity, side, privileged=privileged, planes=planes).files.values())


def _expected(layout: Layout) -> dict[str, Any]:
    """Return the constant entries of ``replay.json``; version 2 came with the privileged column."""
    version = {"version": 2, "privileged": layout.privileged} if layout.privileged else {"version": 1}
    return {
        **version,
        **_FIXED,
        "row_bytes": layout.row.itemsize,
        "frame": list(frame_shape(layout.side, layout.planes)),
    }


def _of_another_size(path: Path, has: int, size: int) -> str:
    if has > size:
        return f"{path}: this replay can't be used, the file has {has} bytes, expected {size}."
    return (
        f"{path}: this replay can't be used, the file is cut short to {has} of {size} bytes (put a whole copy back; "
        f"after `truncate -s {size} {path}` the next start leaves out only the rows that it lacks)."
    )
