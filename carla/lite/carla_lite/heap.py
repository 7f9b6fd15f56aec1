"""What is free in the C library's heap, given back to the system.

Towns come and go in blocks of all sizes, and what is made of them takes more on the way than in the end. glibc keeps
the pages of all that went: of a server that had loaded eight towns of 400 m, 230 of 430 MiB.
"""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return free pages to the system; where the C library isn't glibc nothing happens."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
