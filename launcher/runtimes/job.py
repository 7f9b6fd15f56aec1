"""The runtime that takes jobs: what the supervisor still goes by."""

from __future__ import annotations

from typing import Protocol

from launcher.runtimes.processes import Program

Job = Program


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
