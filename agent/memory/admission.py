"""The door to a training: before anything is allocated, what the allocator was told, and whether the run fits.

Owns the order and the two events. Called in the learner's process, after the allocator's variables are set.
"""

from __future__ import annotations

from typing import Any

import torch

from agent.config import AgentConfig, ConfigError
from agent.memory import allocator
from agent.memory.allocator import Choice, Settings
from agent.memory.survey import survey
from agent.reporting.telemetry import EventLog
from agent.run_directory import RunDirectory

NOT_APPLICABLE = "not applicable on the CPU"


def admit(config: AgentConfig, run: RunDirectory, chosen: Choice) -> None:
    """Write the events ``allocator`` and ``footprint``.

    Raises:
        ConfigError: the configuration can't fit, with the largest batch that would; or CUDA isn't there.
    """
    events = EventLog(run.events)
    found = survey(config, run)
    took_hold = read_back() if found.cuda else NOT_APPLICABLE
    settings = allocator.parse(chosen.text, source="the allocator's setting")
    differing = [] if isinstance(took_hold, str) else ignored(settings, took_hold)
    events.append("allocator", chosen.cause, setting=chosen.text, took_hold=took_hold, ignored=differing)
    events.append("footprint", found.verdict(), **found.plain())
    if found.refusal is not None:
        raise ConfigError(found.refusal)


def read_back() -> dict[str, Any]:
    """Return the settings that PyTorch's CUDA allocator says it runs with; needs a context."""
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in settings.items()
    }


def ignored(settings: Settings, took_hold: Settings) -> list[str]:
    """Return the keys that PyTorch reports under the same name with another value than it was given."""
    return [key for key, value in settings.items() if key in took_hold and took_hold[key] != value]
