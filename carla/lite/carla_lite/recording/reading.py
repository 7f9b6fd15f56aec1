"""Reads a recording, frame by frame; holds one frame at a time.

Owns the conversion of any file to frames: its header, the chain of its packets, and the order of its times. A file that
ends within a frame, as after a crash, is read up to the last complete one.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from carla_lite.recording.layout import LAYOUTS, MAGIC, Packet, RecordingError, packet_of

_MOST_FRAME_BYTES = 1 << 26
_NUMBER, _DATE = struct.Struct("<H"), struct.Struct("<q")
_HEAD, _START = struct.Struct("<BI"), struct.Struct("<Qdd")
_MIXED = frozenset((Packet.WHEELS, Packet.BIKER, Packet.DOOR))
"""Packets whose kind can only be told by their bytes."""


class NotARecordingError(RecordingError):
    """A file that doesn't begin like a recording."""


@dataclass
class Frame:
    """One frame: its number, its time (s since the first one), and its packets as stored in the file."""

    number: int
    duration_s: float
    elapsed_s: float
    packets: list[tuple[Packet, bytes]] = field(default_factory=list)

    def records(self, packet: Packet) -> list[Any]:
        """Return the records of one kind.

        Raises:
            RecordingError: they are broken.
        """
        try:
            return [record for kind, data in self.packets if kind is packet for record in LAYOUTS[kind].read(data)]
        except RecordingError as error:
            raise RecordingError(f"frame {self.number}, packet {packet.name}: {error}") from None


class Recording:
    """An open recording; a context manager that closes it."""

    def __init__(self, path: Path) -> None:
        """Open a file and read its header.

        Raises:
            OSError: there is none, or it can't be read.
            RecordingError: it is no recording.
        """
        self._file: BinaryIO = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        try:
            (self.version,) = self._take(_NUMBER)
            if self._bytes() != MAGIC:
                raise NotARecordingError(f"it is no recording: it doesn't begin with {MAGIC.decode()}")
            (self.date,) = self._take(_DATE)
            self.map = self._bytes().decode(errors="replace")
        except RecordingError:
            self._file.close()
            raise
        self._begin = self._file.tell()
        self.torn_in = 0
        """Number of the frame within which the file ends, if it does; known once all frames are read."""

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def frames(self, wanted: Collection[Packet]) -> Iterator[Frame]:
        """Yield the frames with the wanted packets; only one iteration at a time.

        Raises:
            RecordingError: a time is NaN or goes back, or a frame is too large.
        """
        self._file.seek(self._begin)
        taken = frozenset(wanted) | _MIXED if _MIXED.intersection(wanted) else frozenset(wanted)
        frame: Frame | None = None
        last_s = 0.0
        for number, size in self._heads():
            if number == Packet.FRAME_START:
                if frame is not None:
                    yield frame
                frame = self._start(size, last_s)
                last_s = frame.elapsed_s
            elif frame is not None and number == Packet.FRAME_END:
                self._file.seek(size, os.SEEK_CUR)
                yield frame
                frame = None
            elif frame is not None and number in taken:
                payload = self._read(size)
                kind = packet_of(number, payload)
                if kind in wanted:
                    frame.packets.append((kind, payload))
                if sum(len(data) for _, data in frame.packets) > _MOST_FRAME_BYTES:
                    raise RecordingError(f"frame {frame.number} has more than {_MOST_FRAME_BYTES >> 20} MiB")
            else:
                self._file.seek(size, os.SEEK_CUR)
        self.torn_in = 0 if frame is None else frame.number

    def _heads(self) -> Iterator[tuple[int, int]]:
        """Yield id and size of each complete packet of the file."""
        while len(head := self._file.read(_HEAD.size)) == _HEAD.size:
            number, size = _HEAD.unpack(head)
            if size > self._size - self._file.tell():
                return
            yield number, size

    def _start(self, size: int, last_s: float) -> Frame:
        if size < _START.size:
            raise RecordingError(f"a frame's start has {size} bytes, expected {_START.size}")
        number, duration_s, elapsed_s = _START.unpack_from(self._read(size))
        if not math.isfinite(duration_s) or not last_s <= elapsed_s < math.inf:
            raise RecordingError(f"frame {number} is at {elapsed_s} s, the one before at {last_s} s")
        return Frame(number, duration_s, elapsed_s)

    def _read(self, size: int) -> bytes:
        if size > _MOST_FRAME_BYTES:
            raise RecordingError(f"a packet has {size} bytes, expected at most {_MOST_FRAME_BYTES}")
        return self._file.read(size)

    def _take(self, number: struct.Struct) -> tuple[Any, ...]:
        data = self._file.read(number.size)
        if len(data) < number.size:
            raise NotARecordingError("it is no recording: it ends within the header")
        return number.unpack(data)

    def _bytes(self) -> bytes:
        (size,) = self._take(_NUMBER)
        return self._file.read(size)


def is_recording(path: Path) -> bool:
    """Return whether a file begins like a recording."""
    try:
        Recording(path).close()
    except RecordingError:
        return False
    return True
