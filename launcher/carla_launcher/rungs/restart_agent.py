"""A rung that restarts the agent with other values."""

from __future__ import annotations

from typing import ClassVar

from carla_launcher.observe.pools import OwnerKind
from carla_launcher.rungs.apply import SetsValues


class FreshAgent(SetsValues):
    """Values that need a new process: the agent writes a checkpoint and stops, and starts with ``overrides.yaml``."""

    restarts: ClassVar[OwnerKind | None] = OwnerKind.AGENT
    does: str = "restart_agent"
