"""The C library's heap, told to keep what it has: on the CPU what a GPU's caching allocator does on the GPU.

Owns three calls into glibc, and some addresses set aside. By default it gives freed memory back and asks for it anew,
page by page: up to 4 300 page faults an update at batch 256, a quarter of its time, in some processes and in others
none, by the order in which sizes were first freed. Where the C library isn't glibc nothing is changed.

A heap that keeps what it has is in the way once memory ran out for good (RLIMIT_AS, strict overcommit): it has grown up
to the limit, its empty pages count, and there is no room for what isn't the heap's: oneDNN maps the code that it writes
for each new size of a micro-batch. So some room is set aside until then, and from then on what the heap lacks is
mapped, and unmapped when freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_NEVER = 2**30
"""Bytes: larger than any tensor of an update; more free memory than this at the heap's end is given back."""
_LARGE = 2**18
"""Bytes: once memory ran out, what is at least so large and has no place in the heap is mapped by itself."""
SET_ASIDE = 64 * 2**20
"""Bytes of addresses, never touched: they take no RAM."""

_aside: list[mmap.mmap] = []


def keep() -> bool:
    """Let this process reuse what it frees instead of giving it back; return whether the C library took it."""
    with contextlib.suppress(OSError):
        if not _aside:
            _aside.append(mmap.mmap(-1, SET_ASIDE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    mallopt = _function("mallopt")
    return mallopt is not None and all(mallopt(which, _NEVER) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


def give_back() -> None:
    """Memory ran out: return what is free to the system, as far as whole pages are free, and let the heap not grow."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
    while _aside:
        _aside.pop().close()
    trim()


def trim() -> None:
    """Return what is free to the system, once; the heap goes on keeping what it gets from then on."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _function(name: str) -> Callable[..., int] | None:
    with contextlib.suppress(OSError, AttributeError):
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
        return found
    return None
