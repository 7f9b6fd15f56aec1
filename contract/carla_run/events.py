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
    """Events in ``agent-events.jsonl``; the learner writes them."""

    ALLOCATOR = "allocator"
    """The learner set PyTorch's allocator at its start. Fields: ``setting``, ``took_hold``, ``ignored``."""
    APPLIED = "applied"
    """A request changed configuration values in the running process. Fields: ``values``."""
    CANNOT_FIT = "cannot_fit"
    """The run doesn't fit into memory or onto the disk. Nothing was allocated. Exit code 71 follows."""
    CHECKPOINT = "checkpoint"
    """The learner wrote a checkpoint. Fields: ``steps``, ``updates``."""
    CHECKPOINT_FAILED = "checkpoint_failed"
    """The disk refused a checkpoint. Training continues, and the next interval tries again.
    If the last checkpoint of the run fails, exit code 65 follows.
    Fields: ``wanted`` (why it was due), ``kept`` (the newest complete checkpoint, or null), ``steps``, ``updates``.
    """
    CHECKPOINT_SKIPPED = "checkpoint_skipped"
    """The newest checkpoint is damaged, holds NaN or doesn't fit the networks, and the learner loaded an older one.
    Fields: ``used`` (its name).
    """
    CHUNK_LOST = "chunk_lost"
    """Steps were lost with a machine of a cluster. Fields: ``node``, ``at_most``, ``seen``, ``collector``."""
    COLLECTOR_PLACED = "collector_placed"
    """A collector got a machine of a cluster. Fields: ``node``, ``incarnation``, ``simulator``, ``collector``."""
    COLLECTOR_READY = "collector_ready"
    """A collector is connected and begins to drive.
    Fields: ``pid``, ``steps``, ``collector`` (if there are several).
    """
    COLLECTOR_RESTARTED = "collector_restarted"
    """A collector ended or hung, and another one is started."""
    DEVICE = "device"
    """The configured device is ``auto``, and the GPU is too full at the start. Fields: ``device``."""
    DRAINED = "drained"
    """A drain is complete: the simulators are free. Fields: ``steps``, ``updates``."""
    DRAIN_ENDED = "drain_ended"
    """Collectors start again after a drain. Fields: ``steps``, ``updates``."""
    EVALUATED = "evaluated"
    """An evaluation is complete.
    Fields: ``step``, ``final``, ``totals``, ``collector_mib``, ``encoder_mib``, ``video``, ``pictures``.
    """
    EVALUATION_REHEARSED = "evaluation_rehearsed"
    """A collector rehearsed an evaluation to measure its memory.
    Fields: ``before_mib``, ``after_mib``, ``encoder_mib``, ``routes``.
    """
    FAILED = "failed"
    """The run ends with an error."""
    FEATURES_ADAPTED = "features_adapted"
    """The network was adapted to another camera size. Fields: ``cells_before``, ``side``."""
    FINISHED = "finished"
    """The run is complete. Fields: ``steps``, ``updates``."""
    FOOTPRINT = "footprint"
    """The learner estimated its memory before it allocates. Fields: all of ``carla-td3 footprint --json``."""
    GRAPHS_REFUSED = "graphs_refused"
    """Updates could not be recorded as CUDA graphs (``td3.cuda_graph``), and run without. Fields: ``device``."""
    MICRO_BATCH_LOWERED = "micro_batch_lowered"
    """The last learner left no exit code, and lack of memory is a possible cause.
    Fields: ``micro_batch``, ``last_micro_batch``, ``needed_mib``, ``free_mib``.
    """
    NO_CUDA = "no_cuda"
    """The configuration allows CUDA, and PyTorch can't use it. ``auto`` trains on the CPU; ``cuda`` ends with 65."""
    OUT_OF_MEMORY = "out_of_memory"
    """Memory ran out during an update.
    Fields: ``phase`` (critic, actor or targets; ``rehearsed critic`` and so on at the start), ``action`` (collected:
    garbage was freed, the size stays; halved: the micro-batch; moved: to the CPU; exhausted: exit code 71 follows),
    ``batch``, ``micro_batch`` (it failed), ``next_micro_batch``, ``device``, ``next_device``, ``updates``,
    ``asked_bytes``, ``free_bytes``, ``snapshot``.
    """
    PRECISION = "precision"
    """The device computes in another precision than configured. Fields: ``asked``, ``computed``, ``device``."""
    REHEARSED = "rehearsed"
    """The learner made an update at its start only to measure its memory.
    Fields: ``batch``, ``micro_batch`` (it fits), ``host_peak_mib``, ``device_allocated_peak_mib``,
    ``device_reserved_peak_mib``.
    """
    REPLAY_INDEX_DAMAGED = "replay_index_damaged"
    """The learner found ``replay.json`` or its copy damaged or lost, used the other, and wrote both again.
    Fields: ``folder``.
    """
    REPLAY_RESHAPED = "replay_reshaped"
    """The replay was rewritten for another capacity or frame size.
    Fields: ``capacity_before``, ``capacity``, ``side_before``, ``side``, ``rows``, ``dropped``, ``seconds``.
    """
    REQUESTED = "requested"
    """The learner read a request; ``cause`` is its kind. Fields: ``id``, ``values``."""
    REQUEST_ANSWERED = "request_answered"
    """The learner answered a request. Fields: ``id``, ``kind``, ``result``."""
    REQUEST_UNREADABLE = "request_unreadable"
    """``request.json`` is invalid and has no id, so it gets no answer."""
    RESET = "reset"
    """New networks replaced the old ones; they learn from the collected rows (``training.final_updates``).
    Fields: ``updates``.
    """
    RESUMED = "resumed"
    """A learner continues a run. Fields: those of ``started``."""
    ROWS_DAMAGED = "rows_damaged"
    """The learner found damaged rows, or a wrong number of rows, in a ring at its start.
    Fields: ``folder``, ``damaged`` and ``left_out`` (row numbers), ``rows`` (counted before, and now).
    """
    STARTED = "started"
    """A learner begins a run.
    Fields: ``steps``, ``updates``, ``config_digest``, ``overrides``, ``changed`` (key: value in the last
    ``config.yaml``, value now), versions.
    """
    STOPPED = "stopped"
    """The run ends early, after a request or SIGTERM. Fields: ``steps``, ``updates``."""
    TOWN = "town"
    """A collector changes to a town of ``training.towns``, or to the map of the evaluations.
    Fields: ``map``, ``episodes`` (begun so far), ``steps``, ``collector`` (if there are several).
    """


class LauncherEvent(StrEnum):
    """Events in ``launcher-events.jsonl``; the launcher writes them."""

    AGENT_ADOPTED = "agent_adopted"
    """The launcher took over an agent that an earlier launcher had started. Fields: ``pid``."""
    AGENT_ASKED_TO_STOP = "agent_asked_to_stop"
    """The launcher sent SIGTERM to the agent. Fields: ``grace_s``."""
    AGENT_ENDED = "agent_ended"
    """The agent ended by itself. Fields: ``exit_code``, ``oom_killed``."""
    AGENT_KILLED = "agent_killed"
    """The launcher sent SIGKILL to the agent."""
    AGENT_RESTART = "agent_restart"
    """The launcher will restart the agent after a wait. Fields: ``delay_s``."""
    AGENT_STARTED = "agent_started"
    """The agent has a process. Fields: ``pid``, ``log``."""
    AGENT_STARTS = "agent_starts"
    """The launcher is about to start the agent. Fields: ``resume``, ``overrides``."""
    AGENT_STOPPED = "agent_stopped"
    """The launcher stopped the agent. Fields: ``exit_code``."""
    RESTORE_FAILED = "restore_failed"
    """Memory ran short within ``restore.probation_s`` after a step up the ladder.
    Fields: ``hold_s`` (seconds to wait before the next step up; doubled).
    """
    RESTORE_STANDS = "restore_stands"
    """Memory sufficed for ``restore.probation_s`` after a step up the ladder.
    Fields: ``hold_s`` (seconds to wait before the next step up).
    """
    CHECKPOINT_SET_ASIDE = "checkpoint_set_aside"
    """The agent crashed twice at its start from this checkpoint, which was renamed.
    Fields: ``checkpoint``, ``kept_as``, ``resumes_from`` (the one before).
    """
    CRASH_LOOP = "crash_loop"
    """The launcher has used up its restarts. Exit code 70 follows."""
    DRAINING = "draining"
    """The launcher begins a drain."""
    DRIVE_ENDED = "drive_ended"
    """A drive of an evaluation's item ended, or the next launcher found that the last one was killed during the drive.
    The disk has the event before the result counts.
    Fields: ``item``, ``drive``, ``outcome`` (done; failed: this is its result; again: no result; undone: it doesn't
    count), ``why`` (simulator, time_limit, not_valid, exit, not_started, stopped, launcher_killed; null with a result),
    ``exit_code``, ``took_s``, ``result``, ``peak_mib`` (of simulator and program, by kind of memory).
    """
    DRIVE_STARTS = "drive_starts"
    """A drive of an evaluation's item is about to start. The disk has the event before the start.
    Fields: ``item``, ``drive`` (from 1), ``simulator``, ``folder``.
    """
    FINDING = "finding"
    """The launcher found a problem.
    Fields: ``diagnosis``, ``pool``, ``owner``, ``deficit_mib``, ``exhausted_in_s``, ``exit_code``, ``numbers``.
    """
    FINDING_OVER = "finding_over"
    """A problem no longer exists. Fields: ``diagnosis``, ``pool``, ``owner``."""
    ITEMS = "items"
    """An evaluation's list of items is new or has changed. Fields: ``items``, ``drives`` (most without a result)."""
    OVERRIDES_FAILED = "overrides_failed"
    """The disk refused ``overrides.yaml``."""
    FURTHER_SIMULATOR_HEALTHY = "further_simulator_healthy"
    """The simulator of a second or later collector answers and ticks. Fields: ``simulator``, ``took_s``."""
    FURTHER_SIMULATOR_RESTART = "further_simulator_restart"
    """The launcher will restart the simulator of a second or later collector after a wait.
    Fields: ``simulator``, ``failures``, ``delay_s``.
    """
    FURTHER_SIMULATOR_STARTED = "further_simulator_started"
    """The simulator of a second or later collector has a process. Fields: ``simulator``, ``pid``, ``log``."""
    FURTHER_SIMULATOR_STOPPED = "further_simulator_stopped"
    """The launcher stopped the simulator of a second or later collector, or gave it up. Fields: ``simulator``."""
    MEMORY_READABLE = "memory_readable"
    """GPUs that couldn't be read can be read again. Fields: ``pools``."""
    MEMORY_UNREADABLE = "memory_unreadable"
    """The driver fails, so GPUs that the run uses can't be read. The run continues without their figures.
    Fields: ``pools``.
    """
    PLANNED_BANDS = "planned_bands"
    """The launcher planned the memory of each program on this rung. Fields: ``bands_mib``."""
    PLANNED_WITHOUT_CUDA = "planned_without_cuda"
    """The agent's PyTorch can't use the GPU, so the launcher plans for the CPU. Fields: ``reason``."""
    REQUEST = "request"
    """The launcher sent a request to the agent. Fields: ``kind``, ``id``, ``values``."""
    REQUEST_ANSWERED = "request_answered"
    """The agent answered a request. Fields: ``kind``, ``id``, ``ok``."""
    REQUEST_FAILED = "request_failed"
    """The disk refused a request. Fields: ``kind``."""
    REQUEST_UNANSWERED = "request_unanswered"
    """The agent didn't answer a request in time. Fields: ``kind``, ``id``."""
    RUNG_ADOPTED = "rung_adopted"
    """The launcher keeps a rung that the agent took by itself. Fields: ``rung``, ``kind``, ``step``."""
    RUNG_LEFT = "rung_left"
    """The launcher took a step up the ladder. Fields: ``rung``."""
    RUNG_TAKEN = "rung_taken"
    """The launcher took a step down the ladder. Fields: ``rung``, ``kind``, ``frees_mib``."""
    RUN_ENDED = "run_ended"
    """The launcher ends. Fields: ``exit_code``."""
    RUN_STARTED = "run_started"
    """A launcher begins. Fields: ``resume``, ``config``, ``command``, ``reason``, ``changed``, ``before``."""
    SIMULATOR_ADOPTED = "simulator_adopted"
    """The launcher took over a simulator that an earlier launcher had started. Fields: ``pid``."""
    SIMULATOR_FAILED = "simulator_failed"
    """A start of the simulator failed. Fields: ``diagnosis``, ``exit_code``."""
    SIMULATOR_HEALTHY = "simulator_healthy"
    """The simulator answers and ticks. Fields: ``took_s``, ``version``, ``frame``."""
    SIMULATOR_KILLED = "simulator_killed"
    """The launcher sent SIGKILL to the simulator."""
    SIMULATOR_RESTART = "simulator_restart"
    """The launcher will restart the simulator after a wait. Fields: ``delay_s``."""
    SIMULATOR_STARTED = "simulator_started"
    """The simulator has a process. Fields: ``pid``, ``log``."""
    SIMULATOR_STARTS = "simulator_starts"
    """The launcher is about to start the simulator. Fields: ``port``, ``quality``."""
    SIMULATOR_STOPPED = "simulator_stopped"
    """The launcher stopped the simulator. Fields: ``exit_code``."""
    STOOD_STILL = "stood_still"
    """Training stood still, and now it continues or the run ends.
    Fields: ``incidents``, ``from_s`` (time of the last progress), ``until_s``, ``down`` (simulator, agent, collector or
    resume, each from when to when it was missing), ``goes_on`` (whether training continues), ``steps_lost``,
    ``updates_repeated`` (null if unknown).
    """
    VERIFIED = "verified"
    """Training runs on its present rung, and an incident is over. Fields: ``free_mib``, ``held_mib``."""
    WAITING = "waiting"
    """The launcher doesn't act on a problem yet; ``reason`` says why. Fields: ``diagnosis``, ``reason``."""


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
    no_gpu: bool = False
    """The process sees no GPU, according to the error."""
    no_simulator: bool = False
    """The simulator didn't answer, according to the error."""


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
    """``device`` if the GPU has no memory left to start CUDA; otherwise None."""
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
