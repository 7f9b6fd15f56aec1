"""The checksum of a row: 16 bits that the row holds, over its number, its fields and its frame.

It shows changed bits, a page that the disk lost or wrote in part, and a page that belongs elsewhere: an older row of
the same place has another number. Owns no file.
"""

from __future__ import annotations

import zlib
from typing import Any

UNKNOWN = 0
"""Checksum of the rows that earlier versions wrote. They count as whole."""


def checksum(number: int, fields: bytes, frame: bytes | memoryview) -> int:
    """Return a row's checksum, 1 to 65535.

    Args:
        number: the row's number, not its slot.
        fields: bytes of the row, with zeros in place of the checksum.
        frame: its stored frame.
    """
    whole = zlib.crc32(frame, zlib.crc32(fields, zlib.crc32(number.to_bytes(8, "little"))))
    # These shifts of all pairs lose no single changed bit in a row and a frame of up to 9 planes (a test looks).
    return (whole ^ whole >> 11 ^ whole >> 14) & 0xFFFF or 1


def bare(row: Any) -> bytes:
    """Return a row's bytes, with zeros in place of the checksum."""
    content, (_, at) = row.tobytes(), row.dtype.fields["checksum"][:2]
    return bytes(content[:at] + bytes(2) + content[at + 2 :])
