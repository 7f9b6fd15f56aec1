"""JSON objects that hold a checksum, so that what a disk changed in a small file is not taken for what was written."""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, Mapping

_CHECKSUM = "checksum"


def sealed(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the object with its checksum, the key ``checksum``."""
    return {**values, _CHECKSUM: _checksum(values)}


def is_damaged(found: Mapping[str, Any]) -> bool:
    """Return whether an object that was read has another checksum than its own; False if it has none."""
    return _CHECKSUM in found and found[_CHECKSUM] != _checksum(unsealed(found))


def unsealed(found: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the object without its checksum."""
    return {key: value for key, value in found.items() if key != _CHECKSUM}


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
