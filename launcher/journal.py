"""The launcher's memory on disk: ``launcher.json``, ``launcher-events.jsonl`` and the run's lock.

Owns these three files and writes nothing else; reading them (and the agent's) is ``run_directory``'s.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from launcher.run_directory import RunDirectory


class RunInUseError(Exception):
    """Another launcher holds this run; the message is one sentence for a person."""


@dataclass
class ProcessState:
    """A process of the run as ``launcher.json`` shows it."""

    pid: int | None = None
    command: str = ""
    log: str = ""


@dataclass
class LauncherState:
    """``launcher.json``: where the run stands, and enough to start it again the same way."""

    run: str
    runtime: str
    host: str
    port: int
    map: str | None
    seed: int | None
    pid: int = field(default_factory=os.getpid)
    started: float = 0.0
    updated: float = 0.0
    state: str = "init"
    simulator: ProcessState | None = None
    agent: ProcessState | None = None
    simulator_failures: int = 0
    simulator_restarts: int = 0
    exit_code: int | None = None
    reason: str = ""


class RunLock:
    """The right to run ``runs/<name>``; gone with the last process that holds ``descriptor``.

    Children's keepers inherit it: the run of a launcher that was killed stays locked until its agent has gone too.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Take it.

        Raises:
            RunInUseError: somebody else has it.
            OSError: the directory can't be written.
        """
        self.descriptor = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self.descriptor, 64).decode(errors="replace").strip() or "unknown"
            os.close(self.descriptor)
            raise RunInUseError(
                f"{run.path} is in use by the launcher with process id {owner}, or by what it left behind a moment "
                "ago: wait for its end, or choose another --run-name."
            ) from None
        os.ftruncate(self.descriptor, 0)
        os.write(self.descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Give it back."""
        os.close(self.descriptor)


class Journal:
    """Writes state and events; ``now`` is the wall clock."""

    def __init__(self, run: RunDirectory, state: LauncherState, now: Callable[[], float]) -> None:
        self._run = run
        self._now = now
        self.state = state
        state.started = now()

    def event(self, event: str, cause: str = "", **numbers: Any) -> None:
        """Add a line: what happened, why, and the numbers that decided; then save the state that it led to."""
        row = {"time": round(self._now(), 3), "event": event, "cause": cause, **numbers}
        with self._run.launcher_events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.save()

    def save(self) -> None:
        """Write ``launcher.json`` whole: to a temporary name, to the disk, then renamed."""
        self.state.updated = round(self._now(), 3)
        temporary = self._run.launcher_state.with_suffix(f".{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(asdict(self.state), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._run.launcher_state)


def is_held(path: Path) -> bool:
    """Return whether some process holds the lock file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
