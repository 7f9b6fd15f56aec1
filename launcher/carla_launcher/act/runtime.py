"""Interface of a runtime, which starts simulator and agent, and the plain data that it takes.

``local`` implements the interface with local processes, ``compose`` with the Compose stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from carla_launcher.observe.observation import Program
from carla_run.exits import Exit, ExitError


class Role(Enum):
    """Role of a program. When the launcher dies, the agent stops first and then the simulator."""

    SIMULATOR = "simulator"
    AGENT = "agent"


@dataclass(frozen=True)
class Start:
    """A program to start.

    Attributes:
        role: whether it is the simulator or the agent.
        quality: rendering quality of CARLA, Low or Epic; None for the agent and for carla-lite.
        resume: whether the agent resumes the run.
        number: index of the simulator, from 0.
    """

    role: Role
    quality: str | None = None
    resume: bool = False
    number: int = 0


class Child(Program, Protocol):
    """A program that was started."""

    def terminate(self) -> None:
        """Ask the program to stop, and return at once. Does nothing if the program has ended."""

    def kill(self) -> None:
        """Kill the program and all its descendants, and wait until they have ended."""


class Runtime(Protocol):
    """Starts the programs of one run, and finds those that an earlier launcher left."""

    def start(self, start: Start) -> Child:
        """Start a program. Return before the program is ready.

        Raises:
            StartError: it can't be started at all.
        """

    def left(self, role: Role) -> Child | None:
        """Return a program of this run that an earlier launcher left running; None if there is none."""

    def clear(self) -> None:
        """Stop all programs that still run, and remove the run's containers and networks.

        Raises:
            StartError: something can't be removed.
        """

    def close(self) -> None:
        """Release the runtime's resources. Programs in containers continue."""


class StartError(ExitError):
    """A program can't be started. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG
