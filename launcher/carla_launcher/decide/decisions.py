"""The decisions: plain data that the supervisor carries out."""

from __future__ import annotations

from dataclasses import dataclass

from carla_launcher.decide.ladder import RungStep
from carla_launcher.observe.pools import PoolKind


@dataclass(frozen=True)
class Nothing:
    """Change nothing. A ``reason`` that isn't empty becomes an event."""

    reason: str = ""


@dataclass(frozen=True)
class RestartSimulator:
    """Restart the simulator, after a failure or before one.

    Attributes:
        failed: it has ended or doesn't work; otherwise the agent is drained first.
        waits: wait for the end of an episode.
    """

    cause: str
    delay_s: float = 0.0
    failed: bool = True
    waits: bool = False


@dataclass(frozen=True)
class RestartAgent:
    """Restart the agent with the present values.

    Attributes:
        failed: it has ended or hangs; otherwise it writes a checkpoint and stops first.
        waits: wait for the end of an episode.
        simulator_too: restart the simulator as well.
    """

    cause: str
    delay_s: float = 0.0
    failed: bool = True
    waits: bool = False
    simulator_too: bool = False


@dataclass(frozen=True)
class Degrade:
    """Take steps down the ladder together.

    Attributes:
        steps: at most one per rung.
        kind: kind of the memory that is short.
    """

    steps: tuple[RungStep, ...]
    kind: PoolKind
    cause: str


@dataclass(frozen=True)
class Restore:
    """Restore: undo the last step that was taken."""


@dataclass(frozen=True)
class Ending:
    """How the run ends: the launcher's exit code, and the reason as a sentence without full stop."""

    code: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """End the run."""

    ending: Ending


Decision = Nothing | RestartSimulator | RestartAgent | Degrade | Restore | Stop
