"""The last rung."""

from __future__ import annotations

from typing import ClassVar

from carla_launcher.rungs.rung import Rung


class EndRun(Rung):
    """The run ends: a checkpoint, a report, exit 71."""

    stays: ClassVar[bool] = False
    ends_run: ClassVar[bool] = True
    does: str = "stop"
