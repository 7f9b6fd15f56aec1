"""One look at a run: what simulator, agent and memory are at one moment. Plain data, made by ``observer``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from carla_launcher.observe.pools import Reading
from carla_run.exits import exit_in_words
from carla_run.heartbeat import Heartbeat


class Sign(str, Enum):
    """What a line of the simulator's log means (facts.md, section 4)."""

    OUT_OF_VRAM = "out_of_vram"
    OUT_OF_RAM = "out_of_ram"
    NO_VULKAN = "no_vulkan"
    """There is no Vulkan driver that Unreal can use."""
    VULKAN_FAILED = "vulkan_failed"
    """The driver is there and doesn't start, for want of memory or because it is broken."""
    ROOT = "root"
    NO_LIBRARY = "no_library"
    LAVAPIPE = "lavapipe"
    PORT_TAKEN = "port_taken"
    DEVICE_LOST = "device_lost"
    RENDERER_HUNG = "renderer_hung"
    CRASH = "crash"


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; 128 + n if signal n ended it.
        oom_killed: the kernel killed it, or something in its container, for memory.
        planned: the launcher asked for it: never read as a crash.
        undone: what would show that a program has done its work, and isn't there; empty if nothing is missing.
        left: processes that it left running, which had to be ended.
    """

    code: int
    oom_killed: bool = False
    planned: bool = False
    undone: str = ""
    left: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return exit_in_words(self.code) + (", killed for memory" if self.oom_killed else "")


class Program(Protocol):
    """A program that was started, as far as it is observed."""

    @property
    def pid(self) -> int:
        """Return the program's (a container's first) process id on this host; 0 while it has none."""

    @property
    def log(self) -> Path:
        """Return the file that its output is added to."""

    def poll(self) -> Ended | None:
        """Return None while it runs, then how it ended (``planned`` is the observer's to know, never set here)."""

    def pids(self) -> frozenset[int]:
        """Return the host's ids of all its processes now."""


@dataclass(frozen=True)
class SimulatorSeen:
    """The simulator.

    Attributes:
        running: it was started and hasn't ended; true also for one that the launcher doesn't run.
        pid: on this host, so that one simulator is told from the next; 0 if there is none, or it is unknown.
        healthy: what the last health check said; None before the first one.
        problem: why it isn't healthy, half a sentence.
        checks_failed: in a row, up to the last one.
        connection_lost: the idle connection saw its end, and nothing has answered there since.
        signs: of the log lines that are new since the look before, with the lines.
    """

    running: bool
    ended: Ended | None = None
    healthy: bool | None = None
    problem: str = ""
    checks_failed: int = 0
    connection_lost: bool = False
    signs: tuple[tuple[Sign, str], ...] = ()
    pid: int = 0


@dataclass(frozen=True)
class AgentSeen:
    """The agent.

    Attributes:
        running: it was started and hasn't ended.
        beat: of this very process (its start is newer than what it followed); None until it first beats.
        beat_age_s: since ``agent.json`` last changed, by the launcher's own clock; 0 before the first beat.
        events: lines of ``agent-events.jsonl`` that are new since the look before.
        pid: on this host, so that one agent is told from the next; 0 if there is none.
    """

    running: bool
    ended: Ended | None = None
    beat: Heartbeat | None = None
    beat_age_s: float = 0.0
    events: tuple[Mapping[str, Any], ...] = ()
    pid: int = 0


@dataclass(frozen=True)
class Observation:
    """Everything at ``time_s``, of a clock that a suspended machine doesn't count."""

    time_s: float
    memory: Reading
    simulator: SimulatorSeen
    agent: AgentSeen
