"""A control group of memory for tests: its limit can be cut, and it shows all that runs in it. Needs root."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from carla_run.memory.cgroups import Cgroups
from tests.crowd import until

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
MARGINS_MIB = (2, 4, 8, 16, 32, 64)


class Group:
    """A control group of memory.

    Attributes:
        folder: folder of its files.
    """

    def __init__(self, limit_mib: int | None = None) -> None:
        """Make it, with a limit or none.

        Raises:
            OSError: control groups can't be made here.
        """
        base, limit = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
        self.folder = base / f"test-{os.getpid()}"
        self.folder.mkdir()
        self._limit = self.folder / limit
        self._none = "-1" if base == V1 else "max"
        if limit_mib is not None:
            self._limit.write_text(str(limit_mib * 2**20))

    @classmethod
    def or_skip(cls, limit_mib: int | None = None) -> Group:
        """Make it, or skip the test where control groups can't be made."""
        try:
            return cls(limit_mib)
        except OSError as error:
            pytest.skip(f"control groups can't be made here ({error.strerror}); root can where they aren't read-only")

    def take(self, pid: int) -> None:
        """Take a process in, and all that it starts from now on."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def left(self) -> list[int]:
        """Return the processes that are in it."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def cut(self) -> None:
        """Leave next to nothing beyond what is held: the kernel refuses a limit that it can't reach."""
        held = Cgroups().of(self.left()[0])
        assert held is not None
        for margin_mib in MARGINS_MIB:
            with contextlib.suppress(OSError):
                self._limit.write_text(str(round((held.held_mib + margin_mib) * 2**20)))
                return
        raise AssertionError("the kernel takes no lower limit")

    def free(self) -> None:
        """Lift its limit."""
        self._limit.write_text(self._none)

    def close(self) -> None:
        """Kill what is left, and remove it."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.left())
        self.folder.rmdir()
