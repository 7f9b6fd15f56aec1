"""Writes a recording, frame by frame; the file has only complete frames at any moment.

Owns the times of frames and the end of a file that may not grow: a full disk, or its size limit. A frame's duration is
known when the next one comes, so the last frame is held until then.
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
    """A recording that is being written."""

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
        """Add a frame ``delta_s`` after the previous one; packets are written in order.

        Raises:
            OSError: the disk refuses it.
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
            OSError: the disk refuses it; the file is closed anyway.
            RecordingError: the file has reached its limit; the file is closed anyway.
        """
        try:
            if self._frame:
                self._release(_UNKNOWN_S)
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without the held frame."""
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
            with contextlib.suppress(OSError):  # the written part of a frame would be read as torn
                os.ftruncate(self._file.fileno(), self._whole)
            raise
        self._whole = self._file.tell()
        self._left -= sum(map(len, parts))
