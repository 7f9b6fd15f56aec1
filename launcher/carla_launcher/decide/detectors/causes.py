"""Why something is wrong: the causes that exist, and a finding with the numbers that decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Cause(str, Enum):
    """What went, or is going, wrong. A stop that the launcher caused is none of these."""

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
    MISCONFIGURATION = "misconfiguration"
    CRASH_LOOP = "crash_loop"
    OUT_OF_BAND = "out_of_band"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        cause: what.
        sentence: for people, without its full stop: the thing, its value, what was expected.
        pool: name of the pool that is short; empty if none is.
        owner: who grew, leaks or takes; empty if none does.
        deficit_mib: how much must be freed in the pool for the reserve to hold again.
        exhausted_in_s: at the present slope; None if the pool isn't running out.
        exit_code: of whatever ended; None if nothing did.
        numbers: what decided, for the journal.
        incident: its id; empty until the supervisor has recorded the finding.
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
        """Which trouble it is: found again with the same key, it is the same one."""
        return self.cause.value, self.pool, self.owner
