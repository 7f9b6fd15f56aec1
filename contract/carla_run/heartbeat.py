"""The agent's heartbeat, ``agent.json``: what it is doing, once a second."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from carla_run.enums import StrEnum
from carla_run.files import read_whole
from carla_run.records import plain, record, text


class Phase(StrEnum):
    """What the learner is at."""

    STARTING = "starting"
    WAITING_FOR_SIMULATOR = "waiting_for_simulator"
    """The collector connects."""
    WARMING = "warming"
    """Only collecting yet."""
    COLLECTING = "collecting"
    """Waiting for steps."""
    UPDATING = "updating"
    EVALUATING = "evaluating"
    SAVING = "saving"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"


class CollectorState(StrEnum):
    """What the collector is at, and so why it takes no step."""

    STARTING = "starting"
    CONNECTING = "connecting"
    REHEARSING = "rehearsing"
    """An evaluation, as far as that goes without driving."""
    STEPPING = "stepping"
    WAITING = "waiting"
    """For the learner: it has taken all steps that it may."""
    EVALUATING = "evaluating"
    RECORDING = "recording"
    STOPPING = "stopping"
    ABSENT = "absent"
    """There is no collector."""


class Cuda(StrEnum):
    """What the agent's PyTorch makes of CUDA."""

    USABLE = "usable"
    CPU_BUILD = "cpu_build"
    """This PyTorch was built without CUDA."""
    HIDDEN = "hidden"
    """CUDA_VISIBLE_DEVICES leaves no card over."""
    NO_DEVICE = "no_device"
    """The kernel shows this process no card: there is none, its driver isn't loaded, or a container lacks it."""
    REFUSED = "refused"
    """The card is there, and the driver or its library refuses: too old, say."""


@dataclass(frozen=True)
class CollectorFigures:
    """The collector.

    Attributes:
        pid: as the learner sees it; None without one.
        state: what it is at.
    """

    pid: Optional[int] = None
    state: CollectorState = CollectorState.ABSENT


@dataclass(frozen=True)
class CollectorBeat:
    """One of several collectors.

    Attributes:
        pid: as the learner sees it; None without one.
        state: what it is at.
        steps: in its ring, ever.
        ticks: of its simulator, in all of its processes of this run.
        tick_outstanding_s: how long a call to its simulator has been out; 0 when none is.
        restarts: of it.
    """

    pid: Optional[int]
    state: CollectorState
    steps: int
    ticks: int
    tick_outstanding_s: float
    restarts: int


@dataclass(frozen=True)
class MemoryFigures:
    """What the agent holds, in MiB.

    Attributes:
        learner_mib: of RAM, without pages of files; likewise ``collector_mib``, of all collectors.
        device_mib: of the GPU, by what PyTorch's allocator calls it (``reserved``, ``allocated``…); None on the CPU.
        peak_by_phase_mib: the maxima so far.
    """

    learner_mib: Optional[float] = None
    collector_mib: Optional[float] = None
    device_mib: Optional[Mapping[str, float]] = None
    peak_by_phase_mib: Optional[Mapping[str, Mapping[str, float]]] = None


@dataclass(frozen=True)
class Heartbeat:
    """``agent.json``.

    Attributes:
        time: seconds since 1970.
        pid: as the agent sees itself; in a container another one than the host's.
        total_steps: that there are to be; 0 where that is unknown.
        episode: how many have ended.
        cuda: None where it wasn't asked for.
        gave_way: the event of memory by which device or micro-batch is less than was asked for; None for none.
        update_ms: of the last update; None before the first.
        ticks: of the simulators, in all collectors of this run.
        tick_outstanding_s: how long a call to a simulator has been out, the longest; 0 when none is.
        collector: the first one.
        collector_restarts: of all.
        collectors: each by its number; empty where there is one, or where nobody asked for more.
        exit_code: of a learner that is about to end.
    """

    time: float
    pid: int
    phase: Phase
    step: int
    total_steps: int = 0
    updates: int = 0
    episode: int = 0
    device: str = ""
    batch: int = 0
    micro_batch: int = 0
    ticks: int = 0
    tick_outstanding_s: float = 0.0
    collector_restarts: int = 0
    cuda: Optional[Cuda] = None
    gave_way: Optional[str] = None
    update_ms: Optional[float] = None
    collector: CollectorFigures = CollectorFigures()
    memory: MemoryFigures = MemoryFigures()
    exit_code: Optional[int] = None
    collectors: Tuple[CollectorBeat, ...] = ()

    def of(self, collector: int) -> Heartbeat:
        """Return the same as it would be if this were the only collector; of one of several, what is its own."""
        if not self.collectors:
            return self
        own = self.collectors[collector]
        return replace(
            self,
            ticks=own.ticks,
            tick_outstanding_s=own.tick_outstanding_s,
            collector=CollectorFigures(own.pid, own.state),
            collector_restarts=own.restarts,
            collectors=(),
        )

    @property
    def device_reserved_mib(self) -> Optional[float]:
        """Of the GPU, what its allocator has; None on the CPU. What the agent holds beyond is its context."""
        return (self.memory.device_mib or {}).get("reserved")

    @property
    def peaks_mib(self) -> Mapping[str, Mapping[str, float]]:
        """The maxima so far: by phase, then by what is measured (``host``, ``learner``, ``device_reserved``…)."""
        return self.memory.peak_by_phase_mib or {}

    def data(self) -> Dict[str, Any]:
        """Return the file's object."""
        found: Dict[str, Any] = plain(self)
        if not self.collectors:
            del found["collectors"]
        return found

    def json(self) -> str:
        """Return the file's text."""
        return text(self.data(), indent=1)


def read_heartbeat(path: Path) -> Optional[Heartbeat]:
    """Return what the file says; None if it is missing or torn, or something else."""
    try:
        return record(Heartbeat, json.loads(read_whole(path)))
    except (OSError, ValueError, RecursionError):
        return None
