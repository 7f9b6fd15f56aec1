"""Blocks of numbers that several processes map: one writes, the others read.

Every field is 8 bytes at a multiple of 8, so no load or store is ever torn; no field depends on another. A block is in
the run directory, not in /dev/shm: Docker limits that to 64 MiB, and a SIGKILL leaks it (facts.md section 6).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

T = TypeVar("T", bound="CollectorBlock")


class Block:
    """A mapped file of one record."""

    def __init__(self, path: Path, layout: np.dtype[np.void]) -> None:
        """Map a file; it is created if missing."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Allocated, not sparse: a store into a hole on a full disk raises SIGBUS (facts.md section 6).
            os.posix_fallocate(descriptor, 0, layout.itemsize)
        finally:
            os.close(descriptor)
        self.record: Any = np.memmap(path, dtype=layout, mode="r+", shape=(1,))


class Count:
    """An integer field of a block, under its own name."""

    def __set_name__(self, owner: type[Block], name: str) -> None:
        self._name = name

    def __get__(self, block: Block, owner: type[Block]) -> int:
        return int(block.record[self._name][0])

    def __set__(self, block: Block, number: int) -> None:
        block.record[self._name] = number


class CollectorBlock(Block):
    """A block of which each collector has one."""

    NAME: ClassVar[str]
    LAYOUT: ClassVar[np.dtype[np.void]]

    def __init__(self, path: Path) -> None:
        super().__init__(path, self.LAYOUT)

    @classmethod
    def of(cls: type[T], exchange: Path, collector: int = 0) -> T:
        """Return a collector's block."""
        return cls(exchange / (f"{cls.NAME}-{collector}.bin" if collector else f"{cls.NAME}.bin"))
