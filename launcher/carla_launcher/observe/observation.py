"""An observation of a run: simulator, agent and memory at one moment. Plain data, made by ``observer``."""

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
    """Meaning of a line in the simulator's log (facts.md, section 4)."""

    OUT_OF_VRAM = "out_of_vram"
    OUT_OF_RAM = "out_of_ram"
    NO_VULKAN = "no_vulkan"
    """Unreal finds no Vulkan driver that it can use."""
    VULKAN_FAILED = "vulkan_failed"
    """The Vulkan driver is there but doesn't start, from a lack of memory or because it is broken."""
    ROOT = "root"
    NO_LIBRARY = "no_library"
    LAVAPIPE = "lavapipe"
    PORT_TAKEN = "port_taken"
    DEVICE_LOST = "device_lost"
    RENDERER_HUNG = "renderer_hung"
    CRASH = "crash"


@dataclass(frozen=True)
class Done:
    """What a program that still runs has shown of its work's end.

    Attributes:
        sign: a file, or a line of its output, in words.
        for_s: time since it showed that.
        limit_s: time in which it is expected to exit after that; None where nothing says so.
    """

    sign: str
    for_s: float
    limit_s: float | None = None


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; 128 + n if signal n ended it.
        oom_killed: the kernel killed it, or another process in its container, for memory.
        planned: the launcher asked it to end, so it is no crash.
        undone: what would show that a program has done its work, and isn't there; empty if nothing is missing.
        done: what showed that it has done its work, though it crashed after that; else empty.
        left: processes that it left running, which had to be ended.
    """

    code: int
    oom_killed: bool = False
    planned: bool = False
    undone: str = ""
    done: str = ""
    left: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return exit_in_words(self.code) + (", killed for memory" if self.oom_killed else "")


class Program(Protocol):
    """A started program, as the observer sees it."""

    @property
    def pid(self) -> int:
        """Return the process id on this host, of a container's first process; 0 while it has none."""

    @property
    def log(self) -> Path:
        """Return the file to which its output is appended."""

    def poll(self) -> Ended | None:
        """Return None while it runs, then how it ended; only the observer sets ``planned``."""

    def pids(self) -> frozenset[int]:
        """Return the ids of all its processes on this host."""


@dataclass(frozen=True)
class SimulatorSeen:
    """The simulator's state.

    Attributes:
        running: it was started and hasn't ended; always true for a simulator that the launcher doesn't start.
        pid: process id on this host, which distinguishes one simulator from the next; 0 if there is none or unknown.
        healthy: result of the last health check; None before the first one.
        problem: why it isn't healthy, a clause.
        checks_failed: number of checks that failed in a row.
        connection_lost: the simulator closed the idle connection, and nothing has answered since.
        signs: meanings of new log lines, with the lines.
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
    """The agent's state.

    Attributes:
        running: it was started and hasn't ended.
        beat: last heartbeat of this process; None before its first one.
        beat_age_s: time since ``agent.json`` last changed, by the launcher's clock; 0 before the first heartbeat.
        events: new lines of ``agent-events.jsonl``.
        pid: process id on this host, which distinguishes one agent from the next; 0 if there is none.
        done: what has shown, while it runs, that its work is done; None if nothing has.
        awaited: what shows that a command lives; empty where the heartbeat does.
    """

    running: bool
    ended: Ended | None = None
    beat: Heartbeat | None = None
    beat_age_s: float = 0.0
    events: tuple[Mapping[str, Any], ...] = ()
    pid: int = 0
    done: Done | None = None
    awaited: str = ""


@dataclass(frozen=True)
class Observation:
    """Everything observed at ``time_s``, of a clock that stops while the machine is suspended.

    Attributes:
        further: process ids of the simulators from the second on that are up; None while one of them starts.
    """

    time_s: float
    memory: Reading
    simulator: SimulatorSeen
    agent: AgentSeen
    further: tuple[int, ...] | None = ()
