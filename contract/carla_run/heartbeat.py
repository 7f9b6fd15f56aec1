"""The agent's heartbeat, ``agent.json``: what it is doing, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from carla_run.enums import StrEnum
from carla_run.files import read_whole


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

    pid: int | None = None
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

    pid: int | None
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

    learner_mib: float | None = None
    collector_mib: float | None = None
    device_mib: Mapping[str, float] | None = None
    peak_by_phase_mib: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Heartbeat:
    """``agent.json``.

    Attributes:
        time: seconds since 1970.
        pid: as the agent sees itself; in a container another one than the host's.
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

    __pydantic_config__ = ConfigDict(extra="forbid")

    time: float
    pid: int
    phase: Phase
    step: int
    total_steps: int
    updates: int
    episode: int
    device: str
    batch: int
    micro_batch: int
    ticks: int
    tick_outstanding_s: float
    collector_restarts: int
    cuda: Cuda | None = None
    gave_way: str | None = None
    update_ms: float | None = None
    collector: CollectorFigures = CollectorFigures()
    memory: MemoryFigures = MemoryFigures()
    exit_code: int | None = None
    collectors: tuple[CollectorBeat, ...] = ()

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
    def device_reserved_mib(self) -> float | None:
        """Of the GPU, what its allocator has; None on the CPU. What the agent holds beyond is its context."""
        return (self.memory.device_mib or {}).get("reserved")

    @property
    def peaks_mib(self) -> Mapping[str, Mapping[str, float]]:
        """The maxima so far: by phase, then by what is measured (``host``, ``learner``, ``device_reserved``…)."""
        return self.memory.peak_by_phase_mib or {}

    def data(self) -> dict[str, Any]:
        """Return the file's object."""
        return dict(_HEARTBEAT.dump_python(self, mode="json", exclude=self._empty))

    def json(self) -> str:
        """Return the file's text."""
        return _HEARTBEAT.dump_json(self, indent=1, exclude=self._empty).decode() + "\n"

    @property
    def _empty(self) -> set[str]:
        return set() if self.collectors else {"collectors"}


_HEARTBEAT = TypeAdapter(Heartbeat)


def read_heartbeat(path: Path) -> Heartbeat | None:
    """Return what the file says; None if it is missing or torn, or something else."""
    try:
        return _HEARTBEAT.validate_json(read_whole(path), strict=True)
    except (OSError, ValidationError):
        return None
