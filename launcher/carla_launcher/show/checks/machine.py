"""What the checks of ``doctor`` share: the machine that they look at, and the form of what they find.

Owns how a program is asked and for how long. Changes nothing.
"""

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
"""For each program that a check asks."""


class Verdict(str, Enum):
    """What a check comes to."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """It couldn't be found out, or it isn't there and perhaps not needed."""


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was found, and what to do about it (empty if nothing)."""

    verdict: Verdict
    found: str
    do: str = ""


def ok(found: str, do: str = "") -> Finding:
    """Return that all is well."""
    return Finding(Verdict.OK, found, do)


def problem(found: str, do: str) -> Finding:
    """Return what is wrong, and how to mend it."""
    return Finding(Verdict.PROBLEM, found, do)


def unknown(found: str, do: str) -> Finding:
    """Return what couldn't be found out, or isn't there."""
    return Finding(Verdict.UNKNOWN, found, do)


@dataclass(frozen=True)
class Ran:
    """How a command ended; 127 if there is no such program."""

    code: int
    out: str
    said: str


def run(command: tuple[str, ...], environment: Mapping[str, str], limit_s: float = COMMAND_LIMIT_S) -> Ran:
    """Return how a command ended; one that takes longer is killed, and says so."""
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=limit_s, env={**environment}
        )
    except FileNotFoundError:
        return Ran(127, "", f"{command[0]} isn't installed")
    except subprocess.TimeoutExpired:
        return Ran(1, "", f"{Path(command[0]).name} timed out after {limit_s:g} s")
    except OSError as error:
        return Ran(1, "", " ".join(str(error).split()))
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return Ran(ended.returncode, ended.stdout.strip(), lines[-1] if lines else f"exit code {ended.returncode}")


@dataclass(frozen=True)
class Machine:
    """What the checks look at.

    Attributes:
        stack: the folder of the Compose files, where ``.env`` lies.
        config: the agent's configuration, for what a run takes of the disk.
        ports: the simulator's three; None takes those of CARLA_PORTS, else 2000 and the next two.
        asked: what a run would be asked for, as far as it names a command.
    """

    stack: Path
    runs: Path
    config: Path
    ports: tuple[int, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    run: Callable[[tuple[str, ...], Mapping[str, str], float], Ran] = run
    pci: Path = Path("/sys/bus/pci/devices")
    shm: Path = Path("/dev/shm")
    asked: RunOptions = field(default_factory=RunOptions)

    def ask(self, *command: str, limit_s: float = COMMAND_LIMIT_S) -> Ran:
        """Run a command and return how it ended."""
        return self.run(command, self.environment, limit_s)

    def setting(self, name: str) -> str:
        """Return a variable as Compose reads it: of the environment, else of ``.env``, else empty."""
        return self.environment.get(name) or self.dotenv().get(name, "")

    def dotenv(self) -> dict[str, str]:
        """Return what ``.env`` sets; empty if there is none."""
        return project.dotenv(self.stack)
