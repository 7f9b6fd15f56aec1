"""The causes of failures and shortages, and a finding: a cause with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Cause(str, Enum):
    """Cause of a finding. A stop by the launcher is none."""

    SIMULATOR_OUT_OF_VRAM = "simulator_out_of_vram"
    SIMULATOR_CRASH = "simulator_crash"
    SIMULATOR_HOST_OOM = "simulator_host_oom"
    SIMULATOR_HANG = "simulator_hang"
    SIMULATOR_NOT_READY = "simulator_not_ready"
    LEAK = "leak"
    AGENT_CUDA_OOM = "agent_cuda_oom"
    AGENT_HOST_OOM = "agent_host_oom"
    AGENT_DISK_FULL = "agent_disk_full"
    AGENT_CRASH = "agent_crash"
    AGENT_HANG = "agent_hang"
    COLLECTOR_HANG = "collector_hang"
    FOREIGN_PROCESS = "foreign_process"
    PRESSURE = "pressure"
    GPU_LOST = "gpu_lost"
    CONTAINER_LOST_GPU = "container_lost_gpu"
    """The agent's container has no access to the GPU any more, while the host has."""
    MISCONFIGURATION = "misconfiguration"
    OUT_OF_BAND = "out_of_band"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        sentence: for users, without full stop: the thing, its value, what was expected.
        pool: name of the pool that is short; empty if none is.
        owner: owner that grew, leaks or failed; empty if unknown.
        deficit_mib: memory that must be freed in the pool to restore the reserve.
        exhausted_in_s: time until the pool is exhausted at the present growth; None if it isn't growing.
        exit_code: of the program that ended; None if none did.
        numbers: the figures behind the finding, for the journal.
        incident: id of its incident; empty until the supervisor has recorded the finding.
    """

    cause: Cause
    sentence: str
    pool: str = ""
    owner: str = ""
    deficit_mib: float = 0.0
    exhausted_in_s: float | None = None
    exit_code: int | None = None
    numbers: Mapping[str, float | int | str | None] = field(default_factory=dict)
    incident: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Findings with the same key are the same problem."""
        return self.cause.value, self.pool, self.owner
