"""The agent's heartbeat, ``agent.json``: its state, written once a second."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from carla_run.enums import StrEnum
from carla_run.files import read_whole
from carla_run.records import plain, record, text


class Phase(StrEnum):
    """State of the learner."""

    STARTING = "starting"
    WAITING_FOR_SIMULATOR = "waiting_for_simulator"
    """The collector is connecting."""
    WARMING = "warming"
    """Collecting without updates."""
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
    """State of a collector."""

    STARTING = "starting"
    CONNECTING = "connecting"
    REHEARSING = "rehearsing"
    """Rehearsing an evaluation without driving."""
    STEPPING = "stepping"
    WAITING = "waiting"
    """Waiting for the learner: it has taken all allowed steps."""
    EVALUATING = "evaluating"
    RECORDING = "recording"
    STOPPING = "stopping"
    ABSENT = "absent"
    """There is no collector."""


class Cuda(StrEnum):
    """Whether the agent's PyTorch can use CUDA."""

    USABLE = "usable"
    CPU_BUILD = "cpu_build"
    """This PyTorch was built without CUDA."""
    HIDDEN = "hidden"
    """CUDA_VISIBLE_DEVICES hides all GPUs."""
    NO_DEVICE = "no_device"
    """The process has no GPU device: there is none, its driver isn't loaded, or the container lacks it."""
    REFUSED = "refused"
    """There is a GPU, but the driver or its library refuses, for example since it is too old."""


@dataclass(frozen=True)
class CollectorFigures:
    """A collector's process.

    Attributes:
        pid: process id in the learner's namespace; None if there is no local process.
        state: its state.
    """

    pid: Optional[int] = None
    state: CollectorState = CollectorState.ABSENT


@dataclass(frozen=True)
class CollectorBeat:
    """One of several collectors.

    Attributes:
        pid: process id in the learner's namespace; None if there is no local process.
        state: its state.
        steps: total steps that it has written into its ring.
        ticks: ticks of its simulator, in all of its processes of this run.
        tick_outstanding_s: duration of the outstanding call to its simulator; 0 if there is none.
        restarts: number of its restarts.
    """

    pid: Optional[int]
    state: CollectorState
    steps: int
    ticks: int
    tick_outstanding_s: float
    restarts: int


@dataclass(frozen=True)
class MemoryFigures:
    """The agent's memory, in MiB.

    Attributes:
        learner_mib: the learner's RAM without pages of files; ``collector_mib`` is that of all collectors.
        device_mib: GPU memory by the names of PyTorch's allocator (``reserved``, ``allocated``…); None on the CPU.
        peak_by_phase_mib: the peaks so far, by phase.
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
        pid: process id in the agent's namespace; in a container it differs from the host's.
        total_steps: that there are to be; 0 where that is unknown.
        episode: number of finished episodes.
        cuda: None if CUDA wasn't asked for.
        gave_way: the event that lowered device or micro-batch below the configured one; None if none did.
        update_ms: duration of the last update; None before the first one.
        ticks: ticks of all simulators, in all collectors of this run.
        tick_outstanding_s: duration of the longest outstanding call to a simulator; 0 if there is none.
        collector: the first collector.
        collector_restarts: restarts of all collectors.
        collectors: all collectors by number; empty if only one is configured.
        exit_code: exit code of a learner that is about to end; otherwise None.
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
        """Return the heartbeat as if this were the only collector."""
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
    def started(self) -> bool:
        """Return whether the agent's start is over."""
        return self.phase != Phase.STARTING

    @property
    def learns(self) -> bool:
        """Return whether the agent drives and updates."""
        return self.phase in (Phase.COLLECTING, Phase.UPDATING)

    @property
    def device_reserved_mib(self) -> Optional[float]:
        """GPU memory of the allocator; None on the CPU. The agent's other GPU memory is its context."""
        return (self.memory.device_mib or {}).get("reserved")

    @property
    def peaks_mib(self) -> Mapping[str, Mapping[str, float]]:
        """The peaks so far: by phase, then by figure (``host``, ``learner``, ``device_reserved``…)."""
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
    """Return the heartbeat in a file; None if it is missing or invalid."""
    try:
        return record(Heartbeat, json.loads(read_whole(path)))
    except (OSError, ValueError, RecursionError):
        return None
