"""The holder: a process of its own that has memory and does nothing with it.

Owns blocks of one kind of memory, and on a GPU a CUDA context. Orders come as lines on standard input: ``open``, then
``hold MIB`` as often as wanted. Each is answered by a line: ``held MIB`` (of blocks), ``short`` and why where there is
no more, ``broken`` and why where waiting won't help. It ends, and all its memory with it, when standard input is
closed, also by the death of its parent. A process of its own because only the end of a process is sure to give
back a whole CUDA context (facts.md, section 1).

Started by its path with ``python -I -S``: imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from pathlib import Path
from typing import Protocol

MIB = 2**20
BLOCK_MIB = 32
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class _ShortError(Exception):
    """There is no more."""


class _BrokenError(Exception):
    """The driver doesn't work; the message says how."""


class _Source(Protocol):
    def open(self) -> None: ...

    def take(self, mib: int) -> int: ...

    def give_back(self, block: int) -> None: ...


class _Ram:
    """Anonymous pages, all of them touched."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def open(self) -> None:
        """Ask the kernel to end this process first where memory does run out: the command goes on then."""
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

    def take(self, mib: int) -> int:
        try:
            block = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        except OSError as error:
            raise _ShortError(error.strerror) from None
        key = max(self._maps, default=0) + 1
        self._maps[key] = block
        return key

    def give_back(self, block: int) -> None:
        self._maps.pop(block).close()


class _Vram:
    """Allocations of the CUDA driver, through its C interface (the names ending in _v2 are those of its header)."""

    def __init__(self, gpu: int) -> None:
        self._gpu = gpu

    def open(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _BrokenError(f"the CUDA driver can't be loaded: {error}") from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), self._gpu)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def take(self, mib: int) -> int:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib * MIB))
        return address.value

    def give_back(self, block: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(block))

    def _call(self, name: str, *arguments: object) -> None:
        if result := getattr(self._cuda, name)(*arguments):
            error = _ShortError if result == _OUT_OF_MEMORY else _BrokenError
            raise error(f"{name}: CUDA error {result}")


class _Blocks:
    """What is held, newest last; a smaller one comes last so that the amount is exact."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._blocks: list[tuple[int, int]] = []

    @property
    def mib(self) -> int:
        return sum(mib for _, mib in self._blocks)

    def hold(self, mib: int) -> None:
        """Give back until at most ``mib`` are held; take only if fewer were."""
        grow = mib > self.mib
        while self.mib > mib:
            self._source.give_back(self._blocks.pop()[0])
        while grow and self.mib < mib:
            size = min(BLOCK_MIB, mib - self.mib)
            self._blocks.append((self._source.take(size), size))


def main() -> None:
    """Follow orders until there are no more."""
    source: _Source = _Ram() if sys.argv[1] == "ram" else _Vram(int(sys.argv[1]))
    blocks = _Blocks(source)
    for line in sys.stdin:
        order, *amount = line.split()
        try:
            source.open() if order == "open" else blocks.hold(int(amount[0]))
        except _ShortError as error:
            print(f"short {error}", flush=True)
        except _BrokenError as error:
            print(f"broken {error}", flush=True)
        else:
            print(f"held {blocks.mib}", flush=True)


if __name__ == "__main__":
    main()
