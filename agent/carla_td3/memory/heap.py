"""Makes the C library's heap keep freed memory: on the CPU what the caching allocator does on a GPU.

Owns three calls into glibc, and a reserved range of addresses. By default glibc gives freed memory back and requests it
again, page by page: up to 4 300 page faults per update at batch 256, a quarter of its time, in some processes and none
in others, depending on the order in which sizes were first freed. With another C library nothing is changed.

Once memory has run out for good (RLIMIT_AS, strict overcommit), a heap that keeps memory is in the way: it has grown to
the limit, its empty pages count, and nothing else fits, such as the code that oneDNN maps for each new micro-batch
size. So some addresses are reserved until then; from then on, what the heap lacks is mapped, and unmapped when freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_NEVER = 2**30
"""Bytes: larger than any tensor of an update. More free memory than this at the heap's end is given back."""
_LARGE = 2**18
"""Bytes: once memory has run out, an allocation of at least this size that doesn't fit the heap is mapped separately.
"""
RESERVED_BYTES = 64 * 2**20
"""Bytes of reserved addresses, never touched: they take no RAM."""

_reserved: list[mmap.mmap] = []


def keep() -> bool:
    """Let this process reuse freed memory instead of giving it back; return whether the C library accepted that."""
    with contextlib.suppress(OSError):
        if not _reserved:
            _reserved.append(mmap.mmap(-1, RESERVED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    mallopt = _function("mallopt")
    return mallopt is not None and all(mallopt(which, _NEVER) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


def give_back() -> None:
    """Memory ran out: give free pages back to the system, and stop the heap from growing."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
    while _reserved:
        _reserved.pop().close()
    trim()


def trim() -> None:
    """Give free memory back to the system once; afterwards the heap keeps memory as before."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _function(name: str) -> Callable[..., int] | None:
    with contextlib.suppress(OSError, AttributeError):
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
        return found
    return None
