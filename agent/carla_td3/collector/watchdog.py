"""The environment as the collector uses it: every call that may hang is marked, so that the learner can see it.

Owns the marks in the status block, and leaves the environment's behaviour as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_run.heartbeat import CollectorState
from carla_td3.collector.live import LiveView
from carla_td3.config import AgentConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.observation import Observation
from carla_td3.env.route import Planner
from carla_td3.exchange.status import Status


class WatchdogEnv(DrivingEnv):
    """A driving environment whose calls the learner can see from outside.

    Args:
        status: the block in which calls are marked.
        on_lost: see ``Session``.
        live: the live view, which gets each step.
    """

    def __init__(
        self,
        config: AgentConfig,
        status: Status,
        on_lost: Callable[[], None] | None = None,
        live: LiveView | None = None,
    ) -> None:
        super().__init__(config.environment, config.simulator, config.seed, on_lost)
        self._status, self._live = status, live
        self.session.on_tick, self.session.on_connect = self._ticked, self._connecting
        self._call_limit_s = config.simulator.timeout_s + config.collector.hang_margin_s
        self._connect_limit_s = config.simulator.patience_s + self._call_limit_s

    @property
    def planner(self) -> Planner:
        """Routes of the simulator's map; connects if needed."""
        with self._calling():
            return super().planner

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive."""
        with self._calling():
            return super().reset(seed=seed, options=options)

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step."""
        with self._calling():
            result = super().step(action)
            if self._live is not None:  # the live view may ask the simulator, and so hang
                self._live.show(self, action, result[1], result[4])
        return result

    def _ticked(self) -> None:
        """Count a tick. After the first one the simulator is there, and the limit is that of a call instead of a wait.

        So a reset of many slow ticks isn't killed as hung, and one that hangs is found soon.
        """
        self._status.ticks += 1
        self._status.alive(self._call_limit_s)

    def _connecting(self) -> None:
        """Mark the running call as waiting for a simulator, which is no hang."""
        self._status.state = CollectorState.CONNECTING
        self._status.alive(self._connect_limit_s)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Mark an outermost call; afterwards the collector's earlier state is restored."""
        if self._status.in_call:
            yield
            return
        before = self._status.state
        try:
            with self._status.calling(self._call_limit_s):
                yield
        finally:
            self._status.state = before
