"""Writes a recording, frame by frame; what is in the file is whole frames at any moment.

Owns the times of frames and the end of a file that may not grow: a full disk, or the limit that it was opened with.
A frame's duration is known when the next one comes, so the last one is held until then.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carla_lite.recording.layout import LAYOUTS, MAGIC, VERSION, Packet, RecordingError, text

_HEAD, _START = struct.Struct("<BI"), struct.Struct("<Qdd")
_UNKNOWN_S = -1.0


class Writer:
    """A recording that grows."""

    def __init__(self, path: Path, map_name: str, most_bytes: int) -> None:
        """Create the file, or empty it, and write its header.

        Raises:
            OSError: it can't be written.
        """
        self._file = path.open("wb", buffering=0)
        self._left, self._whole = most_bytes, 0
        self._frame, self._elapsed_s = 0, 0.0
        self._held: list[bytes] = []
        date = struct.pack("<q", int(time.time()))
        self._write([struct.pack("<H", VERSION), text(MAGIC.decode()), date, text(map_name)])

    def add(self, delta_s: float, packets: Mapping[Packet, Sequence[Any]]) -> None:
        """Add a frame, so long after the one before; packets go out in their order.

        Raises:
            OSError: the disk takes no more.
            RecordingError: the file has reached its limit.
        """
        if self._frame:
            self._release(delta_s)
            self._elapsed_s += delta_s
        self._frame += 1
        for packet, records in packets.items():
            payload = LAYOUTS[packet].write(records)
            self._held += _HEAD.pack(packet, len(payload)), payload

    def close(self) -> None:
        """Write the last frame, without a duration, as CARLA's recorder leaves it, and close the file.

        Raises:
            OSError: the disk takes no more; the file is closed nevertheless.
            RecordingError: the file has reached its limit; likewise.
        """
        try:
            if self._frame:
                self._release(_UNKNOWN_S)
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without the frame that is held."""
        self._file.close()

    def _release(self, duration_s: float) -> None:
        held, self._held = self._held, []
        start = _START.pack(self._frame, duration_s, self._elapsed_s)
        self._write([_HEAD.pack(Packet.FRAME_START, len(start)), start, *held, _HEAD.pack(Packet.FRAME_END, 0)])

    def _write(self, parts: Sequence[bytes]) -> None:
        data = memoryview(b"".join(parts))
        if len(data) > self._left:
            raise RecordingError("the folder of recordings is full: delete some, or raise --recordings-mib")
        try:
            while data:
                written = self._file.write(data)
                data = data[written:]
        except OSError:
            with contextlib.suppress(OSError):  # the part of a frame that is there would be read as torn
                os.ftruncate(self._file.fileno(), self._whole)
            raise
        self._whole = self._file.tell()
        self._left -= sum(map(len, parts))
