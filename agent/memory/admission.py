"""The door to a training: before anything is allocated, what the allocator was told, whether the run fits, where, and
with what micro-batch after a learner that ended without a word.

Owns the order and the events. Called in the learner's process, after the allocator's variables are set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from agent import cuda
from agent.config import AgentConfig, ConfigError
from agent.cuda import Seen
from agent.exits import AgentError
from agent.memory import aftermath, allocator, footprint
from agent.memory.allocator import Choice, Settings
from agent.memory.footprint import MIB
from agent.memory.survey import Survey, survey
from agent.reporting.telemetry import EventLog
from contract.events import CannotFit, MemoryPool, NoCuda
from contract.exits import Exit
from contract.paths import RunPaths

NOT_APPLICABLE = "not applicable on the CPU"


@dataclass(frozen=True)
class Admitted:
    """Where a run computes, and its configuration: as asked for, but for ``td3.micro_batch`` and an auto precision."""

    device: Literal["cuda", "cpu"]
    config: AgentConfig
    gave_way: str = ""
    """The event by which one of them is less than was asked for; empty for none."""
    cuda: Seen | None = None
    """What PyTorch makes of CUDA here; None where nobody asks for it."""


def admit(config: AgentConfig, run: RunPaths, chosen: Choice) -> Admitted:
    """Write the events ``allocator`` and ``footprint``; ``no_cuda``, ``device`` or ``micro_batch_lowered`` if it is so.

    Raises:
        AgentError: the configuration can't fit (exit 71); the event ``cannot_fit`` has the numbers, and what would.
        ConfigError: CUDA isn't there, or the GPU doesn't compute in ``td3.precision``.
    """
    events = EventLog(run.agent_events)
    seen = None if config.device == "cpu" else cuda.look()
    if seen is not None and not seen.available:
        events.add(NoCuda(cause=str(seen), reason=seen.cuda, device=config.device, pool=seen.pool))
    found = survey(config, run)
    lowered = _after_silence(found.config, run, found, events)
    gave_way = "" if lowered is found.config else "micro_batch_lowered"
    if lowered is not found.config:
        found = survey(lowered, run)
    config = found.config
    if found.cuda:
        require_arithmetic(config.td3.precision)
    took_hold = read_back() if found.cuda else NOT_APPLICABLE
    settings = allocator.parse(chosen.text, source="the allocator's setting")
    differing = [] if isinstance(took_hold, str) else ignored(settings, took_hold)
    events.append(
        "allocator", chosen.dropped or chosen.cause, setting=chosen.text, took_hold=took_hold, ignored=differing
    )
    events.append("footprint", found.verdict(), **found.plain())
    if found.refusal is not None:
        shortage = _shortage(config, found, found.refusal)
        events.add(shortage)
        raise AgentError(found.refusal, Exit.OUT_OF_MEMORY, shortage.pool)
    if found.not_on_cuda is not None:
        gave_way = "device"
        events.append(gave_way, found.not_on_cuda, device="cpu")
    return Admitted("cuda" if found.cuda else "cpu", config, gave_way, seen)


def _shortage(config: AgentConfig, found: Survey, refusal: str) -> CannotFit:
    """Return the numbers of a refusal: for a program that looks for a configuration that fits."""
    pool = footprint.short_pool(config, found.cuda, found.free)
    assert pool is not None
    disk = pool == "disk"
    return CannotFit(
        cause=refusal,
        pool=MemoryPool(pool),
        folder=found.free.folder if disk else None,
        needed_mib=round(found.estimate.total(pool) / MIB, 1),
        free_mib=round(getattr(found.free, pool) / MIB, 1),
        reserve_mib=config.memory.reserve_mib,
        fitting_micro_batch=footprint.largest_micro_batch(config, found.cuda, found.free) or None,
        fitting_batch=found.largest_batch or None,
        fitting_replay=(footprint.largest_replay(config, found.cuda, found.free) or None) if disk else None,
    )


def _after_silence(config: AgentConfig, run: RunPaths, found: Survey, events: EventLog) -> AgentConfig:
    last = None if found.cuda else aftermath.silence(run.heartbeat)
    if last is None:
        return config
    lowered = aftermath.with_less(config, found.free, last)
    if lowered is not config:
        events.append(
            "micro_batch_lowered",
            f"the last learner ended without a word in phase {last.phase}, and memory may be why",
            micro_batch=lowered.td3.micro_batch,
            last_micro_batch=last.micro_batch,
            needed_mib=aftermath.needed_mib(config, last),
            free_mib=round((found.free.host or 0) / MIB, 1),
        )
    return lowered


def require_arithmetic(precision: str) -> None:
    """Let no GPU emulate bfloat16: Turing would, at a fraction of its speed.

    Raises:
        ConfigError: this GPU has no bfloat16.
    """
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name()
        raise ConfigError(f"td3.precision is bfloat16, which {name} has not: set td3.precision to float16.")


def read_back() -> dict[str, Any]:
    """Return the settings that PyTorch's CUDA allocator says it runs with."""
    torch.cuda.init()  # type: ignore[no-untyped-call]  # ``_snapshot`` alone makes no context
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in settings.items()
    }


def ignored(settings: Settings, took_hold: Settings) -> list[str]:
    """Return the keys that PyTorch reports under the same name with another value than it was given."""
    return [key for key, value in settings.items() if key in took_hold and took_hold[key] != value]
