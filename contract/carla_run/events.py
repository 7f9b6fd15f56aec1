"""The events in ``agent-events.jsonl`` and ``launcher-events.jsonl``.

The agent's events that affect the launcher's decisions have typed fields. ``cause`` is always a sentence for users.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, fields
from typing import Any, Callable, ClassVar, Dict, Mapping, Optional, Type, Union

from carla_run.enums import StrEnum
from carla_run.heartbeat import Cuda
from carla_run.records import RecordError, plain, record


class AgentEvent(StrEnum):
    """Names in ``agent-events.jsonl``."""

    ALLOCATOR = "allocator"
    APPLIED = "applied"
    CANNOT_FIT = "cannot_fit"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_FAILED = "checkpoint_failed"
    CHECKPOINT_SKIPPED = "checkpoint_skipped"
    CHUNK_LOST = "chunk_lost"
    COLLECTOR_PLACED = "collector_placed"
    COLLECTOR_READY = "collector_ready"
    COLLECTOR_RESTARTED = "collector_restarted"
    DEVICE = "device"
    DRAINED = "drained"
    DRAIN_ENDED = "drain_ended"
    EVALUATED = "evaluated"
    EVALUATION_REHEARSED = "evaluation_rehearsed"
    FAILED = "failed"
    FEATURES_ADAPTED = "features_adapted"
    FINISHED = "finished"
    FOOTPRINT = "footprint"
    MICRO_BATCH_LOWERED = "micro_batch_lowered"
    NO_CUDA = "no_cuda"
    OUT_OF_MEMORY = "out_of_memory"
    PRECISION = "precision"
    REHEARSED = "rehearsed"
    REPLAY_RESHAPED = "replay_reshaped"
    REQUESTED = "requested"
    REQUEST_ANSWERED = "request_answered"
    REQUEST_UNREADABLE = "request_unreadable"
    RESET = "reset"
    RESUMED = "resumed"
    ROWS_DAMAGED = "rows_damaged"
    STARTED = "started"
    STOPPED = "stopped"
    TOWN = "town"


class LauncherEvent(StrEnum):
    """Names in ``launcher-events.jsonl``."""

    AGENT_ADOPTED = "agent_adopted"
    AGENT_ASKED_TO_STOP = "agent_asked_to_stop"
    AGENT_ENDED = "agent_ended"
    AGENT_KILLED = "agent_killed"
    AGENT_RESTART = "agent_restart"
    AGENT_STARTED = "agent_started"
    AGENT_STARTS = "agent_starts"
    AGENT_STOPPED = "agent_stopped"
    RESTORE_FAILED = "restore_failed"
    RESTORE_STANDS = "restore_stands"
    CRASH_LOOP = "crash_loop"
    DRAINING = "draining"
    DRIVE_ENDED = "drive_ended"
    DRIVE_STARTS = "drive_starts"
    FINDING = "finding"
    FINDING_OVER = "finding_over"
    ITEMS = "items"
    OVERRIDES_FAILED = "overrides_failed"
    FURTHER_SIMULATOR_HEALTHY = "further_simulator_healthy"
    FURTHER_SIMULATOR_RESTART = "further_simulator_restart"
    FURTHER_SIMULATOR_STARTED = "further_simulator_started"
    FURTHER_SIMULATOR_STOPPED = "further_simulator_stopped"
    PLANNED_BANDS = "planned_bands"
    PLANNED_WITHOUT_CUDA = "planned_without_cuda"
    REQUEST = "request"
    REQUEST_ANSWERED = "request_answered"
    REQUEST_FAILED = "request_failed"
    REQUEST_UNANSWERED = "request_unanswered"
    RUNG_ADOPTED = "rung_adopted"
    RUNG_LEFT = "rung_left"
    RUNG_TAKEN = "rung_taken"
    RUN_ENDED = "run_ended"
    RUN_STARTED = "run_started"
    SIMULATOR_ADOPTED = "simulator_adopted"
    SIMULATOR_FAILED = "simulator_failed"
    SIMULATOR_HEALTHY = "simulator_healthy"
    SIMULATOR_KILLED = "simulator_killed"
    SIMULATOR_RESTART = "simulator_restart"
    SIMULATOR_STARTED = "simulator_started"
    SIMULATOR_STARTS = "simulator_starts"
    SIMULATOR_STOPPED = "simulator_stopped"
    STOOD_STILL = "stood_still"
    VERIFIED = "verified"
    WAITING = "waiting"


class MemoryPool(StrEnum):
    """Memory that the agent can run out of."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class CollectorEnd(StrEnum):
    """How a collector ended."""

    NOT_STARTED = "not_started"
    EXIT = "exit"
    SIGNAL = "signal"
    HUNG = "hung"
    """It sent no sign of life in time, and the learner killed it."""
    LOST = "lost"
    """It drove on another machine, and the machine or its Ray actor is gone."""


class _Event:
    event: ClassVar[AgentEvent]

    def row(self) -> Dict[str, Any]:
        """Return a line of the file, without its time."""
        return {"event": self.event.value, **plain(self)}


@dataclass(frozen=True)
class CollectorRestarted(_Event):
    """A collector ended, and another one is started."""

    event = AgentEvent.COLLECTOR_RESTARTED
    end: CollectorEnd
    exit_code: Optional[int] = None
    """Its exit code, if it exited."""
    signal: Optional[int] = None
    """Number of the signal that ended it, if the learner didn't send it."""
    restarts: int = 0
    """Restarts of all collectors."""
    steps: int = 0
    collector: Optional[int] = None
    """Its number, if there are several collectors."""
    cause: str = ""

    def row(self) -> Dict[str, Any]:
        """Return a line of the file, without its time, and without ``collector`` if there is only one."""
        found = super().row()
        if self.collector is None:
            del found["collector"]
        return found

    @property
    def in_a_call(self) -> bool:
        """Whether it ended because a call to the simulator didn't return.

        Then the learner kills it, or the time-out of its Traffic Manager aborts it.
        """
        return self.end is CollectorEnd.HUNG or self.signal == signals.SIGABRT


@dataclass(frozen=True)
class Failed(_Event):
    """The run ends with an error."""

    event = AgentEvent.FAILED
    exit_code: int
    error: str
    """Name of the exception's class."""
    pool: Optional[MemoryPool] = None
    """Memory that ran out; None if none did."""
    gpu_lost: bool = False
    """The driver lost the GPU, according to the error."""
    steps: int = 0
    cause: str = ""


@dataclass(frozen=True)
class CannotFit(_Event):
    """The agent refuses to start for lack of memory or disk; nothing was allocated."""

    event = AgentEvent.CANNOT_FIT
    pool: MemoryPool
    needed_mib: float
    free_mib: float
    reserve_mib: float
    folder: Optional[str] = None
    """Folder on the disk that is too full."""
    fitting_micro_batch: Optional[int] = None
    fitting_batch: Optional[int] = None
    fitting_replay: Optional[int] = None
    """Transitions."""
    cause: str = ""

    @property
    def missing_mib(self) -> float:
        """Memory that must be freed in addition."""
        return max(0.0, self.needed_mib + self.reserve_mib - self.free_mib)


@dataclass(frozen=True)
class NoCuda(_Event):
    """CUDA can't be used."""

    event = AgentEvent.NO_CUDA
    reason: Cuda
    device: str
    """The configured device: auto or cuda."""
    pool: Optional[MemoryPool] = None
    """DEVICE if the GPU has no memory left to start CUDA; otherwise None."""
    cause: str = ""


Decisive = Union[CollectorRestarted, Failed, CannotFit, NoCuda]
_DECISIVE: Dict[str, Type[Decisive]] = {
    kind.event.value: kind for kind in (CollectorRestarted, Failed, CannotFit, NoCuda)
}


def log_by(append: Callable[..., None], event: Decisive) -> None:
    """Log an event with a function that takes its name, cause and fields as keyword arguments."""
    append(**event.row())


def decisive(row: Mapping[str, Any]) -> Optional[Decisive]:
    """Return a line of ``agent-events.jsonl`` as a typed event; None for other or invalid lines."""
    kind = _DECISIVE.get(str(row.get("event")))
    if kind is None:
        return None
    known = {field.name for field in fields(kind)}
    try:
        return record(kind, {name: value for name, value in row.items() if name in known})
    except RecordError:
        return None
