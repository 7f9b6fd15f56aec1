"""The last rung: it ends the run."""

from __future__ import annotations

from typing import ClassVar

from carla_launcher.rungs.rung import Rung


class EndRun(Rung):
    """The run ends with a checkpoint, a report and exit code 71."""

    lasting: ClassVar[bool] = False
    ends_run: ClassVar[bool] = True
    does: str = "stop"
