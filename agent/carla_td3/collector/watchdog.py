"""The environment as the collector uses it: every call that may hang is marked, so that the learner can see it.

Owns the marks in the status block. Adds nothing to the environment's behaviour.
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
        live: shows each step to whoever looks.
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
        self.session.on_tick = self._ticked
        self._call_limit_s = config.simulator.timeout_s + config.collector.hang_margin_s
        self._connect_limit_s = config.simulator.patience_s + self._call_limit_s

    @property
    def planner(self) -> Planner:
        """Routes of the simulator's map; connects if needed, and waiting for a simulator is no hang."""
        with self._reaching():
            return super().planner

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive; waiting for a simulator is no hang."""
        with self._reaching():
            return super().reset(seed=seed, options=options)

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step."""
        with self._status.calling(self._call_limit_s):
            result = super().step(action)
            if self._live is not None:  # it may ask the simulator, and so hang
                self._live.show(self, action, result[1], result[4])
        return result

    def _connected(self) -> None:
        """Reach the simulator, also one that was lost in the middle of a call: that is no hang any more."""
        if not self.session.connected:
            with self._reaching():
                super()._connected()

    def _ticked(self) -> None:
        """Count a tick, after which the simulator is there: from now on the limit is that of one call, not of a wait.

        A reset of many ticks, each of them slow, so isn't killed as hung, and one that hangs is found soon.
        """
        self._status.ticks += 1
        self._status.alive(self._call_limit_s)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Mark a call that waits for a simulator where none is connected."""
        before = self._status.state
        connected = self.session.connected
        if not connected:
            self._status.state = CollectorState.CONNECTING
        try:
            with self._status.calling(self._call_limit_s if connected else self._connect_limit_s):
                yield
        finally:
            self._status.state = before
