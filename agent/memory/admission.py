"""The door to a training: before anything is allocated, what the allocator was told, whether the run fits, and where.

Owns the order and the events. Called in the learner's process, after the allocator's variables are set.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from agent.config import AgentConfig, ConfigError
from agent.memory import allocator
from agent.memory.allocator import Choice, Settings
from agent.memory.survey import survey
from agent.reporting.telemetry import EventLog
from agent.run_directory import RunDirectory

NOT_APPLICABLE = "not applicable on the CPU"


def admit(config: AgentConfig, run: RunDirectory, chosen: Choice) -> Literal["cuda", "cpu"]:
    """Write the events ``allocator`` and ``footprint``, ``device`` if the GPU is left alone; return the device.

    Raises:
        ConfigError: the configuration can't fit, with the largest batch that would; CUDA isn't there; or the GPU
            doesn't compute in ``td3.precision``.
    """
    events = EventLog(run.events)
    found = survey(config, run)
    if found.cuda:
        require_arithmetic(config.td3.precision)
    took_hold = read_back() if found.cuda else NOT_APPLICABLE
    settings = allocator.parse(chosen.text, source="the allocator's setting")
    differing = [] if isinstance(took_hold, str) else ignored(settings, took_hold)
    events.append("allocator", chosen.cause, setting=chosen.text, took_hold=took_hold, ignored=differing)
    events.append("footprint", found.verdict(), **found.plain())
    if found.refusal is not None:
        raise ConfigError(found.refusal)
    if found.not_on_cuda is not None:
        events.append("device", found.not_on_cuda, device="cpu")
    return "cuda" if found.cuda else "cpu"


def require_arithmetic(precision: str) -> None:
    """Let no GPU emulate bfloat16: Turing would, at a fraction of its speed.

    Raises:
        ConfigError: this GPU has no bfloat16.
    """
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name()
        raise ConfigError(f"td3.precision is bfloat16, which {name} has not: set td3.precision to float16.")


def read_back() -> dict[str, Any]:
    """Return the settings that PyTorch's CUDA allocator says it runs with; needs a context."""
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in settings.items()
    }


def ignored(settings: Settings, took_hold: Settings) -> list[str]:
    """Return the keys that PyTorch reports under the same name with another value than it was given."""
    return [key for key, value in settings.items() if key in took_hold and took_hold[key] != value]
