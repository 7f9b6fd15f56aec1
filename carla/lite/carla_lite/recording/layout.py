"""Layout of a recording's file: packets, each with records of one kind.

Owns ids, sizes and order; a string is preceded by its length, and everything is little-endian and packed. Source:
CARLA's ``Recorder/CarlaRecorder*.h`` and ``.cpp``, from 0.9.15 on, and ``Docs/ref_recorder_binary_file_format.md``.
Opens no file.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

from carla_lite.recording.records import (
    Added,
    Attribute,
    Biker,
    Bone,
    Bones,
    Box,
    Collided,
    Door,
    Lamps,
    LightState,
    LightTimes,
    Motion,
    Parented,
    Physics,
    Position,
    Removed,
    SceneLight,
    Time,
    VehicleControl,
    WalkerSpeed,
    Weather,
    Wheel,
    Wheels,
)

MAGIC = b"CARLA_RECORDER"
VERSION = 1
"""Version of files whose attribute types are numbered from 0 (bool), as up to CARLA 0.9.15; version 2 numbers them from
1, as the wire does. Readers of version 2 accept both.
"""


class RecordingError(Exception):
    """A file that is no recording, or a broken one; the message says what is wrong."""


class Packet(IntEnum):
    """Ids of packets. Between 0.9.15 and 0.9.16 CARLA had ``DOOR`` before ``WHEELS``: see :func:`packet_of`."""

    FRAME_START = 0
    FRAME_END = 1
    EVENT_ADD = 2
    EVENT_DEL = 3
    EVENT_PARENT = 4
    COLLISION = 5
    POSITION = 6
    STATE = 7
    ANIM_VEHICLE = 8
    ANIM_WALKER = 9
    VEHICLE_LIGHT = 10
    SCENE_LIGHT = 11
    KINEMATICS = 12
    BOUNDING_BOX = 13
    PLATFORM_TIME = 14
    PHYSICS_CONTROL = 15
    TRAFFIC_LIGHT_TIME = 16
    TRIGGER_VOLUME = 17
    FRAME_COUNTER = 18
    WALKER_BONES = 19
    VISUAL_TIME = 20
    WHEELS = 21
    BIKER = 22
    DOOR = 23
    WEATHER = 24


class Layout(ABC):
    """Layout of the records of one kind of packet."""

    @abstractmethod
    def read(self, payload: bytes) -> list[Any]:
        """Return the records.

        Raises:
            RecordingError: they don't fit into the bytes, or a number is NaN.
        """

    @abstractmethod
    def write(self, records: Sequence[Any]) -> bytes:
        """Return the bytes."""


_COUNT, _LONG_COUNT = struct.Struct("<H"), struct.Struct("<I")


class _Fixed(Layout):
    """A count, then records of one size."""

    def __init__(self, record: str, make: Callable[[Iterable[Any]], Any]) -> None:
        self._record, self._make = struct.Struct(f"<{record}"), make

    def read(self, payload: bytes) -> list[Any]:
        count, data = _counted(payload)
        size = self._record.size * count
        if size > len(data):
            raise RecordingError(
                f"{count} records are said to follow, and there is room for {len(data) // self._record.size}"
            )
        rows = list(self._record.iter_unpack(data[:size]))
        _check(map(sum, rows))
        return list(map(self._make, rows))

    def write(self, records: Sequence[Any]) -> bytes:
        pack = self._record.pack
        return _COUNT.pack(len(records)) + b"".join([pack(*record) for record in records])


class _Single(Layout):
    """A single number."""

    def __init__(self, number: str) -> None:
        self._number = struct.Struct(f"<{number}")

    def read(self, payload: bytes) -> list[Any]:
        (value,) = _Cursor(memoryview(payload)).take(self._number)
        _check((value,))
        return [Time(value)]

    def write(self, records: Sequence[Any]) -> bytes:
        return b"".join(self._number.pack(record.value) for record in records[:1])


class _Cursor:
    """A position in the bytes of records of different sizes."""

    def __init__(self, data: memoryview) -> None:
        self._data, self.at = data, 0

    def take(self, numbers: struct.Struct) -> tuple[Any, ...]:
        begin = self._step(numbers.size)
        return numbers.unpack_from(self._data, begin)

    def text(self) -> str:
        (size,) = self.take(_COUNT)
        begin = self._step(size)
        return bytes(self._data[begin : begin + size]).decode(errors="replace")

    def rows(self, row: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        size = row.size * count
        begin = self._step(size)
        return list(row.iter_unpack(self._data[begin : begin + size]))

    def _step(self, size: int) -> int:
        begin = self.at
        if size > len(self._data) - begin:
            raise RecordingError(f"{size} bytes are said to follow, and there are {len(self._data) - begin}")
        self.at += size
        return begin


class _Varied(Layout):
    """A count, then records that contain their own lengths."""

    def read(self, payload: bytes) -> list[Any]:
        count, data = _counted(payload)
        cursor = _Cursor(data)
        return [self.read_one(cursor) for _ in range(count)]

    def write(self, records: Sequence[Any]) -> bytes:
        return _COUNT.pack(len(records)) + b"".join(map(self.write_one, records))

    @abstractmethod
    def read_one(self, cursor: _Cursor) -> Any:
        """Return the record at the cursor."""

    @abstractmethod
    def write_one(self, record: Any) -> bytes:
        """Return a record's bytes."""


class _AddedLayout(_Varied):
    _head, _uid, _type = struct.Struct("<IB6f"), struct.Struct("<I"), struct.Struct("<B")
    # Blueprints have about 60 attributes of 40 bytes, and a client may give them any text.
    _most_bytes, _most_value_bytes = 1 << 16, 1000

    def read_one(self, cursor: _Cursor) -> Added:
        begin, head = cursor.at, cursor.take(self._head)
        _check(head)
        (uid,), name = cursor.take(self._uid), cursor.text()
        (count,) = cursor.take(_COUNT)
        attributes = tuple(Attribute(cursor.take(self._type)[0], cursor.text(), cursor.text()) for _ in range(count))
        if cursor.at - begin > self._most_bytes:
            raise RecordingError(f"actor {head[0]} has {cursor.at - begin} bytes, expected at most {self._most_bytes}")
        return Added._make((*head, uid, name, attributes))

    def write_one(self, record: Added) -> bytes:
        parts = [self._head.pack(*record[:8]), self._uid.pack(record.uid), text(record.blueprint)]
        parts.append(_COUNT.pack(len(record.attributes)))
        for each in record.attributes:
            parts += self._type.pack(each.type), text(each.id), text(each.value, self._most_value_bytes)
        return b"".join(parts)


class _PhysicsLayout(_Varied):
    _head = struct.Struct("<I5f?7f")
    _rows = tuple(struct.Struct(f"<{count}f") for count in (2, 3, 2, 12))

    def read_one(self, cursor: _Cursor) -> Physics:
        head = cursor.take(self._head)
        lists = [cursor.rows(row, *cursor.take(_LONG_COUNT)) for row in self._rows]
        _check((*head, *(sum(row) for rows in lists for row in rows)))
        return Physics(*head, *lists)

    def write_one(self, record: Physics) -> bytes:
        parts = [self._head.pack(*record[:14])]
        for rows, row in zip(record[14:], self._rows, strict=True):
            parts += _LONG_COUNT.pack(len(rows)), *(row.pack(*each) for each in rows)
        return b"".join(parts)


class _BonesLayout(_Varied):
    _head, _place = struct.Struct("<IH"), struct.Struct("<6f")

    def read_one(self, cursor: _Cursor) -> Bones:
        number, count = cursor.take(self._head)
        bones = tuple(Bone(cursor.text(), *cursor.take(self._place)) for _ in range(count))
        _check(sum(bone[1:]) for bone in bones)
        return Bones(number, bones)

    def write_one(self, record: Bones) -> bytes:
        bones = (text(bone.name) + self._place.pack(*bone[1:]) for bone in record.bones)
        return self._head.pack(record.id, len(record.bones)) + b"".join(bones)


class _WheelsLayout(_Varied):
    _head, _wheel = struct.Struct("<II"), struct.Struct("<Bff")

    def read_one(self, cursor: _Cursor) -> Wheels:
        number, count = cursor.take(self._head)
        rows = cursor.rows(self._wheel, count)
        _check(map(sum, rows))
        return Wheels(number, tuple(map(Wheel._make, rows)))

    def write_one(self, record: Wheels) -> bytes:
        return self._head.pack(record.id, len(record.wheels)) + b"".join(
            self._wheel.pack(*each) for each in record.wheels
        )


LAYOUTS: dict[Packet, Layout] = {
    Packet.EVENT_ADD: _AddedLayout(),
    Packet.EVENT_DEL: _Fixed("I", Removed._make),
    Packet.EVENT_PARENT: _Fixed("II", Parented._make),
    Packet.COLLISION: _Fixed("III??", Collided._make),
    Packet.POSITION: _Fixed("I6f", Position._make),
    Packet.STATE: _Fixed("I?fb", LightState._make),
    Packet.ANIM_VEHICLE: _Fixed("I3f?i", VehicleControl._make),
    Packet.ANIM_WALKER: _Fixed("If", WalkerSpeed._make),
    Packet.VEHICLE_LIGHT: _Fixed("II", Lamps._make),
    Packet.SCENE_LIGHT: _Fixed("i5f?B", SceneLight._make),
    Packet.KINEMATICS: _Fixed("I6f", Motion._make),
    Packet.BOUNDING_BOX: _Fixed("I6f", Box._make),
    Packet.PLATFORM_TIME: _Single("d"),
    Packet.PHYSICS_CONTROL: _PhysicsLayout(),
    Packet.TRAFFIC_LIGHT_TIME: _Fixed("I3f", LightTimes._make),
    Packet.TRIGGER_VOLUME: _Fixed("I6f", Box._make),
    Packet.FRAME_COUNTER: _Single("Q"),
    Packet.WALKER_BONES: _BonesLayout(),
    Packet.VISUAL_TIME: _Single("d"),
    Packet.WHEELS: _WheelsLayout(),
    Packet.BIKER: _Fixed("Iff", Biker._make),
    Packet.DOOR: _Fixed("IB?", Door._make),
    Packet.WEATHER: _Fixed("14f", Weather._make),
}
"""The layout of each packet's records, except frame start and frame end."""


def packet_of(number: int, payload: bytes) -> Packet:
    """Return the kind of a packet: numbers 21 to 23, which changed meaning, are told apart by record size (see
    ``Packet``).
    """
    packet = Packet(number)
    if packet not in (Packet.WHEELS, Packet.BIKER, Packet.DOOR) or len(payload) <= _COUNT.size:
        return packet
    (count,) = _COUNT.unpack_from(payload)
    sizes = {_COUNT.size + 6 * count: Packet.DOOR, _COUNT.size + 12 * count: Packet.BIKER}
    return sizes.get(len(payload), Packet.WHEELS)


def text(value: str, most_bytes: int = 0xFFFF) -> bytes:
    """Return a string in the file's format: its length in bytes, then UTF-8, of which it keeps the first bytes."""
    data = value.encode()[:most_bytes]
    return _COUNT.pack(len(data)) + data


def _counted(payload: bytes) -> tuple[int, memoryview]:
    if len(payload) < _COUNT.size:
        raise RecordingError(f"{len(payload)} bytes are too few for a count")
    return _COUNT.unpack_from(payload)[0], memoryview(payload)[_COUNT.size :]


def _check(numbers: Iterable[float]) -> None:
    """Raise RecordingError if a number isn't finite; sums of single-precision numbers can't overflow."""
    if not math.isfinite(sum(numbers)):
        raise RecordingError("a number is infinite or none")
