"""What the supervisor asks of whatever runs the simulator and the agent: the interface and its plain data.

Owns no process and no decision. ``processes`` implements it with local processes, ``compose`` with the Compose stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from carla_launcher.observe.observation import Program
from carla_run.exits import Exit, ExitError


class Role(Enum):
    """Whom a program serves. When the launcher dies, the agent stops first and the simulator after it."""

    SIMULATOR = "simulator"
    AGENT = "agent"


@dataclass(frozen=True)
class Start:
    """What to start.

    Attributes:
        quality: of the simulator: Low or Epic; None for the agent, and for a simulator that knows none.
        resume: the agent goes on with the run.
        number: of the simulator, where there are several; the first is 0.
    """

    role: Role
    quality: str | None = None
    resume: bool = False
    number: int = 0


class Child(Program, Protocol):
    """A program that was started."""

    def terminate(self) -> None:
        """Ask it to stop and return at once; harmless when it has ended."""

    def kill(self) -> None:
        """End it and all its descendants now; they are gone when this returns."""


class Runtime(Protocol):
    """Starts the programs of one run and finds what an earlier launcher of it left."""

    def start(self, start: Start) -> Child:
        """Start a program and return soon, before it is ready.

        Raises:
            StartError: it can't be started at all.
        """

    def left(self, role: Role) -> Child | None:
        """Return what still runs of this run, started by a launcher that is gone; None if nothing does."""

    def clear(self) -> None:
        """Remove what is left of a run that has ended: containers, networks; what still runs is stopped before.

        Raises:
            StartError: something can't be removed.
        """

    def close(self) -> None:
        """Let go of what the runtime itself holds; nothing that runs is stopped by it."""


class StartError(ExitError):
    """A program can't be started; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG
