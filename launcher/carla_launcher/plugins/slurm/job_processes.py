"""Which processes of this node belong to the same job: those of its other steps, which no launcher started."""

from __future__ import annotations

import re
from pathlib import Path

from carla_run.memory.processes import PROC

KEPT = 4096
"""Answers that are kept; a process can't change its job."""
_LAUNCHER = re.compile(rb"carla_launcher|(?:\S*/)?carla-launcher|\S*/carla_launcher/\S*")
"""A word of the command line of a launcher, or of the shim of one of its programs."""


class JobProcesses:
    """Answers for the processes of one node.

    Args:
        job: Slurm's id of the job.
        proc: the /proc file system.
    """

    def __init__(self, job: str, proc: Path = PROC) -> None:
        self._variable, self._group = f"SLURM_JOB_ID={job}".encode(), f"/job_{job}/".encode()
        self._proc = proc
        self._known: dict[int, bool] = {}

    def __call__(self, pid: int) -> bool:
        """Return whether a process is one of the job's, and of no launcher. Another user's can't be read: False."""
        if len(self._known) > KEPT:
            self._known.clear()
        if pid not in self._known:
            self._known[pid] = self._is_in_job(pid) and not self._is_launched(pid)
        return self._known[pid]

    def _is_in_job(self, pid: int) -> bool:
        variables = self._read(pid, "environ").split(b"\0")
        return self._variable in variables or self._group in self._read(pid, "cgroup")

    def _is_launched(self, pid: int) -> bool:
        """Return whether it, or one of its ancestors, is a launcher: another run of the job."""
        while pid > 1:
            if any(map(_LAUNCHER.fullmatch, self._read(pid, "cmdline").split(b"\0"))):
                return True
            after_name = self._read(pid, "stat").rpartition(b")")[2].split()
            pid = int(after_name[1]) if len(after_name) > 1 else 0
        return False

    def _read(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except OSError:
            return b""
