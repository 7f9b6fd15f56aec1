"""The collector's loop: drive and store a step, evaluate on order, wait, stop.

Owns the environment and the writing end of the replay. It reads orders between two steps, never inside one. A call that
hangs ends with the process, which the trainer kills. Never trains.
"""

from __future__ import annotations

import os
from collections import deque

from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.collector.evaluations import RunEvaluations
from carla_td3.collector.live import LiveView
from carla_td3.collector.rollout import Rollout
from carla_td3.collector.watchdog import WatchdogEnv
from carla_td3.config import AgentConfig
from carla_td3.evaluation.drivers import PolicyDriver
from carla_td3.evaluation.routes import Steps, completed_unless
from carla_td3.exchange.messages import Channel, Evaluate, Evaluated, ReachedLastEpisode, Ready, Rehearsed, Stop
from carla_td3.exchange.status import Pace, Status
from carla_td3.exchange.weights import WeightsFile, unflatten
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.replay import Replay

WAIT_S = 0.001
"""Seconds between two looks at the step limit while no step is allowed; an order ends the wait earlier."""


class Collector:
    """Takes orders from one trainer, over ``channel``.

    Args:
        config: made by the trainer for this collector.
        run: the run whose files it maps and writes.
        channel: to the trainer.
        number: of this collector in the run. The live view shows number 0.
        until_episode: see ``Configure``.
    """

    def __init__(
        self, config: AgentConfig, run: RunPaths, channel: Channel, number: int = 0, until_episode: int | None = None
    ) -> None:
        self._config = config
        self._until_episode = until_episode
        self._reported_end = False
        self._run = run
        self._channel = channel
        self._orders: deque[Evaluate] = deque()
        self._stopping = False
        self._status, self._pace = Status.of(run.exchange, number), Pace.of(run.exchange, number)
        self._weights = WeightsFile(run.exchange / "weights.bin")
        self._weights_version = 0
        stack = FrameStack.of(config.environment.camera)
        self._policy = Policy(config.td3.network, stack)
        privileged = privileged_numbers(config.environment)
        self._replay = Replay.create(run.ring(number), config.replay.capacity, stack, privileged)
        leave = _leave if config.environment.traffic.in_process else None
        self._env = WatchdogEnv(config, self._status, leave, None if number else LiveView(run))
        self._evaluations = RunEvaluations(config, run, self._env, self._policy, self._status, channel.send)
        self._rollout = Rollout(config, self._env, self._replay, PolicyDriver(self._policy))

    def run(self, rehearse: bool) -> None:
        """Rehearse an evaluation if ``rehearse`` is set, then drive and evaluate until a stop is ordered.

        Raises:
            NoSimulator, ConfigError, RouteError: errors that a new collector would meet, too.
            ChannelClosedError: the learner is gone.
        """
        self._channel.send(Ready(steps=self._replay.steps))
        if rehearse and self._evaluations.expected:
            self._report(self._evaluations.rehearse())
        while not self._stop_ordered():
            self._turn()
        self._status.state = CollectorState.STOPPING
        self._env.close()

    def _turn(self) -> None:
        if self._orders:
            self._evaluate(self._orders.popleft())
            return
        finished = self._reached_last_episode
        if not finished and self._replay.steps < self._pace.step_limit:
            self._step()
            return
        self._status.state = CollectorState.WAITING
        if finished and not self._reported_end:
            self._reported_end = True
            self._channel.send(ReachedLastEpisode())
        self._stop_ordered(WAIT_S)

    @property
    def _reached_last_episode(self) -> bool:
        """Whether ``until_episode`` is reached: another collector drives the next episode."""
        if self._until_episode is None or self._rollout.in_episode:
            return False
        return self._replay.episodes >= self._until_episode

    def _stop_ordered(self, timeout_s: float = 0.0) -> bool:
        """Read new orders; return whether the learner wants the simulator given back."""
        self._status.alive()
        while not self._stopping and (order := self._channel.receive(timeout_s)) is not None:
            self._stopping = isinstance(order, Stop)
            if isinstance(order, Evaluate):
                self._orders.append(order)
            timeout_s = 0.0
        return self._stopping

    def _report(self, work: Steps[Rehearsed | Evaluated]) -> None:
        """Do work of many steps and report its result, unless a stop is ordered between two of them."""
        found = completed_unless(work, self._stop_ordered)
        if found is not None:
            self._channel.send(found)

    def _step(self) -> None:
        if self._env.session.connected:  # until then another collector gets this one's steps
            self._status.state = CollectorState.STEPPING
        self._take_weights()
        if not self._rollout.in_episode:
            self._rollout.begin()
            return  # that may have waited for a simulator: whether a step is allowed must be checked again
        ended = self._rollout.step()
        if ended is not None:
            self._status.episodes += 1
            self._channel.send(ended)

    def _take_weights(self) -> None:
        if self._weights.version == self._weights_version:
            return
        weights = self._weights.read()
        if weights is not None:
            self._policy.load_state_dict(unflatten(weights.flat, self._policy.state_dict()))
            self._weights_version = weights.version

    def _evaluate(self, order: Evaluate) -> None:
        """Abort the training episode and evaluate. Nothing of this enters the replay."""
        self._rollout.abandon()
        self._take_weights()
        self._report(self._evaluations.evaluate(order))


def _leave() -> None:
    """Exit before the Traffic Manager's time-out aborts the process: the running tick can't be interrupted.

    With pedestrians, too: a second crowd in one process doesn't walk quite like the first, so a resumed run would
    differ.
    """
    try:
        print(
            "The simulator closed its connection. This collector ran cars or pedestrians in it, so it ends, too.",
            flush=True,
        )
    finally:  # a full disk must not keep this process alive
        os._exit(Exit.CRASH)
