"""What a learner that ended without a word teaches the next one: a smaller micro-batch, if memory may have ended it.

A kernel that takes a process for its memory leaves no message; ``agent.json`` says for ever that the run goes on. Owns
that conclusion and the size that follows from it. Where memory was plenty, whatever killed the process was something
else, and nothing changes; a wrong guess costs time and no learning, for gradients of micro-batches add up to the
batch's. On a GPU the micro-batch is no matter of host memory, and what the device lacks comes as an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from carla_run.heartbeat import Phase, read_heartbeat
from carla_td3.config import AgentConfig
from carla_td3.memory.estimate import MIB, Free, estimate
from carla_td3.memory.fit import Fit

SUSPECT_SHARE = 0.75
"""Of what a run could have: one that needed less didn't end for its own memory. The estimate is 13 MiB low at worst."""


@dataclass(frozen=True)
class PreviousCrash:
    """The last heartbeat of a learner that didn't say how it ended."""

    phase: Phase
    micro_batch: int
    host_peak_mib: float
    """Highest reading of learner and collector together, once a second."""


def read(heartbeat: Path) -> PreviousCrash | None:
    """Return the last heartbeat; None where there is none, or its learner said how it ended."""
    beat = read_heartbeat(heartbeat)
    if beat is None or beat.exit_code is not None:
        return None
    peaks = (figures.get("host", 0.0) for figures in beat.peaks_mib.values())
    return PreviousCrash(beat.phase, beat.micro_batch, max(peaks, default=0.0))


def with_less(config: AgentConfig, free: Free, last: PreviousCrash) -> AgentConfig:
    """Return the configuration to begin with on the CPU: the same one, or with a smaller ``td3.micro_batch``.

    Half of what the last learner had, and half again until the estimate fits; where not even 1 does, it stays at 1 and
    ``preflight`` refuses it.

    Args:
        config: as it was asked for.
        free: what a run could have now.
        last: what the last learner said last.
    """
    if free.host is None or needed_mib(config, last) < SUSPECT_SHARE * free.host / MIB:
        return config
    size = max(1, last.micro_batch // 2)
    while size > 1 and Fit(_with(config, size), False, free).short is not None:
        size //= 2
    configured = config.td3.micro_batch or config.td3.batch_size
    return config if size >= configured else _with(config, size)


def needed_mib(config: AgentConfig, last: PreviousCrash) -> float:
    """Return what the last learner took, with its collector: the larger of its readings and of the estimate."""
    estimated = estimate(_with(config, last.micro_batch), cuda=False).total("host")
    return round(max(estimated / MIB, last.host_peak_mib), 1)


def _with(config: AgentConfig, micro_batch: int) -> AgentConfig:
    return config.model_copy(update={"td3": config.td3.model_copy(update={"micro_batch": micro_batch})})
