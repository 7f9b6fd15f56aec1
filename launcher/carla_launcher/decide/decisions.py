"""What can be decided: plain data that the supervisor carries out."""

from __future__ import annotations

from dataclasses import dataclass

from carla_launcher.decide.ladder import Step, Taken
from carla_launcher.observe.pools import PoolKind


@dataclass(frozen=True)
class Nothing:
    """Go on as it is; ``reason`` is worth an event if it isn't empty."""

    reason: str = ""


@dataclass(frozen=True)
class RestartSimulator:
    """Start the simulator again: after a failure at once or with a delay, or before one at an episode's end.

    Attributes:
        failed: it is gone or of no use; otherwise the agent is drained first.
        waits: for an episode's end.
    """

    cause: str
    delay_s: float = 0.0
    failed: bool = True
    waits: bool = False


@dataclass(frozen=True)
class RestartAgent:
    """Start the agent again with the values that hold now.

    Attributes:
        failed: it has ended, or hangs; otherwise it writes a checkpoint and stops first.
        waits: for an episode's end.
        simulator_too: the next agent gets a fresh simulator.
    """

    cause: str
    delay_s: float = 0.0
    failed: bool = True
    waits: bool = False
    simulator_too: bool = False


@dataclass(frozen=True)
class Degrade:
    """Take steps, all at once.

    Attributes:
        steps: of each rung one at most.
        kind: of the memory that is short.
    """

    steps: tuple[Step, ...]
    kind: PoolKind
    cause: str


@dataclass(frozen=True)
class Restore:
    """Take back the last step that was taken."""

    taken: Taken


@dataclass(frozen=True)
class Ending:
    """The run ends: the launcher's exit code, and why, as a sentence without its full stop."""

    code: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """End the run."""

    ending: Ending


Decision = Nothing | RestartSimulator | RestartAgent | Degrade | Restore | Stop
