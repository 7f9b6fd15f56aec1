"""Gives free memory of the C library's heap back to the system.

Towns need blocks of all sizes, and more while they are made than afterwards. glibc keeps the pages of freed blocks: 230
of 430 MiB in a server that had loaded eight towns of 400 m.
"""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return free pages to the system; without glibc nothing happens."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
