"""The machine that the checks of ``doctor`` examine, and the form of their findings. Changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from carla_launcher.act.compose import project
from carla_launcher.options import RunOptions

COMMAND_LIMIT_S = 15.0
"""Time limit for each program that a check runs."""


class Verdict(str, Enum):
    """Result of a check."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """It couldn't be checked, or it is missing and perhaps not needed."""


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was found, and advice (empty if none)."""

    verdict: Verdict
    found: str
    do: str = ""


def ok(found: str, do: str = "") -> Finding:
    """Return a finding that all is well."""
    return Finding(Verdict.OK, found, do)


def problem(found: str, do: str) -> Finding:
    """Return a finding of a problem, with advice."""
    return Finding(Verdict.PROBLEM, found, do)


def unknown(found: str, do: str) -> Finding:
    """Return a finding of something that couldn't be checked, or is missing."""
    return Finding(Verdict.UNKNOWN, found, do)


@dataclass(frozen=True)
class CommandOutput:
    """Result of a command; code 127 if the program doesn't exist."""

    code: int
    out: str
    said: str


def run(command: tuple[str, ...], environment: Mapping[str, str], limit_s: float = COMMAND_LIMIT_S) -> CommandOutput:
    """Run a command and return its result; it is killed after the time limit."""
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=limit_s, env={**environment}
        )
    except FileNotFoundError:
        return CommandOutput(127, "", f"{command[0]} isn't installed")
    except subprocess.TimeoutExpired:
        return CommandOutput(1, "", f"{Path(command[0]).name} timed out after {limit_s:g} s")
    except OSError as error:
        return CommandOutput(1, "", " ".join(str(error).split()))
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return CommandOutput(
        ended.returncode, ended.stdout.strip(), lines[-1] if lines else f"exit code {ended.returncode}"
    )


@dataclass(frozen=True)
class Machine:
    """The machine that the checks examine.

    Attributes:
        stack: folder of the Compose files and of ``.env``.
        config: the agent's configuration, for the disk space of a run.
        ports: the simulator's three ports; None for those of CARLA_PORTS, else 2000 to 2002.
        asked: what a run would be asked for, as far as it names a command.
    """

    stack: Path
    runs: Path
    config: Path
    ports: tuple[int, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    run: Callable[[tuple[str, ...], Mapping[str, str], float], CommandOutput] = run
    pci: Path = Path("/sys/bus/pci/devices")
    shm: Path = Path("/dev/shm")
    asked: RunOptions = field(default_factory=RunOptions)

    def ask(self, *command: str, limit_s: float = COMMAND_LIMIT_S) -> CommandOutput:
        """Run a command and return its result."""
        return self.run(command, self.environment, limit_s)

    def setting(self, name: str) -> str:
        """Return a variable as Compose reads it: from the environment, else from ``.env``, else empty."""
        return project.setting(name, self.stack, self.environment)
