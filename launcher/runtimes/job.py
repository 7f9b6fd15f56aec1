"""One local program to run, and the runtime that takes such jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from launcher.runtimes.runtime import Role


@dataclass(frozen=True)
class Job:
    """One program to run.

    Attributes:
        environment: laid over the launcher's own.
        log: the file that its output is added to.
        show: its output goes to the terminal as well.
        grace_s: seconds between SIGTERM and SIGKILL if the launcher itself dies.
    """

    role: Role
    command: tuple[str, ...]
    log: Path
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    show: bool = False


class Child(Protocol):
    """A job that was started."""

    @property
    def pid(self) -> int:
        """Return the program's process id on this host."""

    def poll(self) -> int | None:
        """Return None while it runs, then its exit code; 128 + n if signal n ended it."""

    def terminate(self) -> None:
        """Ask it to stop and return at once; harmless when it has ended."""

    def kill(self) -> None:
        """End it and all its descendants now; they are gone when this returns."""


class Runtime(Protocol):
    """Starts jobs. A job that it started never outlives the launcher by more than its grace."""

    def start(self, job: Job) -> Child:
        """Start a job and return at once."""
