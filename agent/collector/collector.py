"""The collector: the process that touches the ``carla`` client. Drives, stores, evaluates, records.

Owns the environment, the writing end of the replay and the obedience to orders. Never trains.
"""

from __future__ import annotations

import os
from collections import deque

from agent.collector.rollout import Rollout
from agent.collector.watchdog import WatchdogEnv
from agent.config import AgentConfig
from agent.evaluation.drivers import PolicyDriver
from agent.evaluation.runner import EvaluationRunner
from agent.exchange.messages import Channel, Evaluate, Ready, Stop
from agent.exchange.status import CollectorState, Pace, Status
from agent.exchange.weights import WeightsFile, unflatten
from agent.td3.networks import Policy
from agent.td3.replay import Replay
from contract.exits import Exit
from contract.paths import RunPaths

WAIT_S = 0.001
"""The collector's look at the step limit while it may not step; an order ends the wait earlier."""


class StopOrderedError(Exception):
    """The learner wants the simulator given back; raised wherever the collector looks for orders."""


class Collector:
    """Obeys one learner."""

    def __init__(self, config: AgentConfig, run: RunPaths, channel: Channel) -> None:
        self._config = config
        self._run = run
        self._channel = channel
        self._orders: deque[Evaluate] = deque()
        self._status, self._pace = Status(run.exchange / "status.bin"), Pace(run.exchange / "pace.bin")
        self._weights = WeightsFile(run.exchange / "weights.bin")
        self._weights_version = 0
        side = config.environment.camera.width
        self._policy = Policy(config.td3.network, side)
        self._replay = Replay.create(run.replay, config.replay.capacity, side)
        self._env = WatchdogEnv(config, self._status, self._look_for_orders, _leave if self._has_traffic else None)
        self._examiner = EvaluationRunner(config, run, self._env, self._policy, self._status)
        self._rollout = Rollout(config, self._env, self._replay, PolicyDriver(self._policy))
        self._episodes = self._status.read().episodes

    @property
    def _has_traffic(self) -> bool:
        return self._config.environment.traffic.vehicles > 0

    def run(self, rehearse: bool) -> None:
        """Rehearse an evaluation if that is wanted, then obey until told to stop.

        Raises:
            NoSimulator, ConfigError, RouteError: a new collector couldn't do better.
            ChannelClosedError: the learner is gone.
        """
        self._channel.send(Ready(steps=self._replay.steps))
        try:
            if rehearse and self._examiner.expected:
                self._channel.send(self._examiner.rehearse())
            while True:
                self._turn()
        except StopOrderedError:
            self._status.state = CollectorState.STOPPING
            self._env.close()

    def _turn(self) -> None:
        self._look_for_orders()
        if self._orders:
            self._evaluate(self._orders.popleft())
        elif self._replay.steps < self._pace.step_limit:
            self._step()
        else:
            self._status.state = CollectorState.WAITING
            self._look_for_orders(WAIT_S)

    def _look_for_orders(self, timeout_s: float = 0.0) -> None:
        self._status.alive()
        while (order := self._channel.receive(timeout_s)) is not None:
            if isinstance(order, Stop):
                raise StopOrderedError
            if isinstance(order, Evaluate):
                self._orders.append(order)
            timeout_s = 0.0

    def _step(self) -> None:
        self._status.state = CollectorState.STEPPING
        self._take_weights()
        ended = self._rollout.step()
        if ended is not None:
            self._episodes += 1
            self._channel.send(ended)
        self._status.count(self._replay.steps, self._episodes)

    def _take_weights(self) -> None:
        if self._weights.version == self._weights_version:
            return
        weights = self._weights.read()
        if weights is not None:
            self._policy.load_state_dict(unflatten(weights.flat, self._policy.state_dict()))
            self._weights_version = weights.version
            self._status.acting_with(weights.version)

    def _evaluate(self, order: Evaluate) -> None:
        """Break the training episode off and evaluate; nothing of this enters the replay."""
        self._rollout.abandon()
        self._take_weights()
        self._channel.send(self._examiner.evaluate(order))


def _leave() -> None:
    """Leave before the Traffic Manager's time-out aborts the process: the tick under way can't be interrupted."""
    print("The simulator closed its connection; a Traffic Manager can't outlive that, this collector ends.", flush=True)
    os._exit(Exit.CRASH)
