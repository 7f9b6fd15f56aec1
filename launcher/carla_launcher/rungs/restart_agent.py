"""A rung that restarts the agent with other values."""

from __future__ import annotations

from typing import ClassVar

from carla_launcher.rungs.apply import SetsValues
from carla_launcher.rungs.rung import RungAction


class FreshAgent(SetsValues):
    """Values that need a new process: the agent writes a checkpoint and stops, and starts with ``overrides.yaml``."""

    acts: ClassVar[tuple[RungAction, ...]] = (RungAction.FRESH_AGENT,)
    does: str = "restart_agent"
