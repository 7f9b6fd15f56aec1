"""A program that takes memory as it is told, and the hand that tells it: real anonymous memory, real mapped files.

Run as a program it reads a line at a time, `touch MIB` or `map PATH`, and answers each; it needs nothing but Python, so
it runs in bare containers, too.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

PAGE = 4096


class Hog:
    """The program, running; ends with its block.

    Args:
        command: what runs it, where that isn't this Python on this file.
    """

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command or (sys.executable, __file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        assert self._answers(), "the program didn't start"

    def __enter__(self) -> Hog:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def touch(self, mib: int) -> bool:
        """Have it take so much anonymous memory; return whether it lives."""
        return self._tell(f"touch {mib}")

    def map(self, path: Path | str) -> bool:
        """Have it map a file and read every page; return whether it lives."""
        return self._tell(f"map {path}")

    def wait(self) -> int:
        """Return its exit code, as Popen gives it."""
        return self._process.wait()

    def _tell(self, line: str) -> bool:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answers()

    def _answers(self) -> bool:
        assert self._process.stdout
        return bool(self._process.stdout.readline())


def write_file(path: Path, mib: int) -> Path:
    """Write a file of so many MiB that has no holes, all of it on the disk."""
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(2**20))
        os.fsync(file.fileno())
    return path


def serve() -> None:
    """Do what the input says until it ends."""
    kept: list[bytearray | mmap.mmap] = []
    print("ready", flush=True)
    for line in sys.stdin:
        what, value = line.split()
        if what == "touch":
            taken = bytearray(int(value) * 2**20)
            taken[::PAGE] = b"\1" * len(taken[::PAGE])
            kept.append(taken)
        else:
            with Path(value).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            assert len(mapped[::PAGE]) > 0
            kept.append(mapped)
        print("done", flush=True)


if __name__ == "__main__":
    serve()
