"""Observes a running training: its exchange blocks, its checkpoints, its child processes.

Owns no process and changes nothing. What must not be lost is the witness's business.
"""

from __future__ import annotations

import json

import psutil

from carla_run.heartbeat import CollectorState
from carla_td3.exchange.status import Status
from carla_td3.exchange.weights import WeightsFile
from tests.wire.trainee import Run


class RunMonitor:
    """Looks at one run; anything may be missing yet."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._exchange = run.path / "exchange"
        self._checkpoints = run.path / "checkpoints"

    @property
    def saving(self) -> bool:
        """Whether a checkpoint is half written."""
        return any(self._checkpoints.glob(".new-*"))

    @property
    def state(self) -> CollectorState:
        """State of the collector."""
        block = self._exchange / "status.bin"
        return Status(block).state if block.exists() else CollectorState.STARTING

    @property
    def published_updates(self) -> int:
        """The update whose weights the collector was last given: in lockstep the last one made."""
        path = self._exchange / "weights.bin"
        weights = WeightsFile(path).read() if path.exists() else None
        return 0 if weights is None else weights.updates

    @property
    def saved_updates(self) -> int:
        """Updates in the checkpoint that a resume begins with: the one named latest, or the only one, not yet named."""
        named = self._checkpoints / "latest"
        whole = (
            [named.read_text().strip()]
            if named.exists()
            else sorted(path.name for path in self._checkpoints.glob("step-*"))
        )
        if not whole:
            return 0
        return int(json.loads((self._checkpoints / whole[-1] / "values.json").read_text())["updates"])

    @property
    def collectors(self) -> list[int]:
        """Process ids of the learner's living collectors."""
        assert self._run.process is not None
        children = psutil.Process(self._run.process.pid).children()
        return [child.pid for child in children if _is_collector(child)]


def _is_collector(process: psutil.Process) -> bool:
    try:
        return "carla_td3.collector" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False
