"""Other values for a fresh agent."""

from __future__ import annotations

from typing import ClassVar

from carla_launcher.rungs.apply import SetsValues
from carla_launcher.rungs.rung import Act


class FreshAgent(SetsValues):
    """Values that need a new process: a checkpoint, a stop, ``overrides.yaml``, a start."""

    acts: ClassVar[tuple[Act, ...]] = (Act.FRESH_AGENT,)
    does: str = "restart_agent"
