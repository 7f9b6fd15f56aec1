"""Learns from a learner that ended without a message: use a smaller micro-batch if memory may have ended it.

A kernel that kills a process for its memory leaves no message, and ``agent.json`` still says that the run is active.
Owns that conclusion and the new size. If there was plenty of memory, something else ended the process, and nothing
changes. A wrong guess costs time and no learning, because gradients of micro-batches add up to the batch's. On a GPU
the micro-batch doesn't affect host memory, and a lack of device memory raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from carla_run.heartbeat import Phase, read_heartbeat
from carla_td3.config import AgentConfig
from carla_td3.memory.estimate import MIB, Free, estimate
from carla_td3.memory.fit import Fit

SUSPECT_SHARE = 0.75
"""Share of the available memory: a learner that needed less didn't run out. The estimate is at most 13 MiB too low."""


@dataclass(frozen=True)
class PreviousCrash:
    """The last heartbeat of a learner that didn't report its end."""

    phase: Phase
    micro_batch: int
    host_peak_mib: float
    """Highest reading of learner and collectors together; read once a second."""


def read(heartbeat: Path) -> PreviousCrash | None:
    """Return the last heartbeat; None if there is none, or its learner reported its end."""
    beat = read_heartbeat(heartbeat)
    if beat is None or beat.exit_code is not None:
        return None
    peaks = (figures.get("host", 0.0) for figures in beat.peaks_mib.values())
    return PreviousCrash(beat.phase, beat.micro_batch, max(peaks, default=0.0))


def with_less(config: AgentConfig, free: Free, last: PreviousCrash) -> AgentConfig:
    """Return the configuration to start with on the CPU: the given one, or with a smaller ``td3.micro_batch``.

    It is half of the last learner's, halved again until the estimate fits. If not even 1 fits, it is 1 and
    ``preflight`` refuses it.

    Args:
        config: as given.
        free: memory that a run could have now.
        last: the last learner's last heartbeat.
    """
    if free.host is None or needed_mib(config, last) < SUSPECT_SHARE * free.host / MIB:
        return config
    size = max(1, last.micro_batch // 2)
    while size > 1 and Fit(_with(config, size), False, free).short is not None:
        size //= 2
    configured = config.td3.micro_batch or config.td3.batch_size
    return config if size >= configured else _with(config, size)


def needed_mib(config: AgentConfig, last: PreviousCrash) -> float:
    """Return the memory of the last learner and its collectors: its readings or the estimate, whichever is larger."""
    estimated = estimate(_with(config, last.micro_batch), cuda=False).total("host")
    return round(max(estimated / MIB, last.host_peak_mib), 1)


def _with(config: AgentConfig, micro_batch: int) -> AgentConfig:
    return config.model_copy(update={"td3": config.td3.model_copy(update={"micro_batch": micro_batch})})
