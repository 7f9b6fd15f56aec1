"""The collector: the process that touches the ``carla`` client. Drives, stores, evaluates, records.

Owns the environment, the writing end of the replay and the obedience to orders. Ends with its learner, and leaves
by ``os._exit``: at interpreter exit a sensor just stopped can abort (protocol section 5.5). Never trains.

Started by ``agent.collecting.process`` as ``python -m agent.collecting.collector SOCKET PARENT``.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections import deque
from pathlib import Path

import torch

from agent import config
from agent.collecting.examiner import Examiner
from agent.collecting.parent import die_with
from agent.collecting.rollout import Rollout
from agent.collecting.watched import WatchedEnv
from agent.config import AgentConfig
from agent.exchange.messages import Channel, ChannelClosedError, Configure, Evaluate, Failed, Ready, Stop
from agent.exchange.status import Doing, Pace, Status
from agent.exchange.weights import WeightsFile, unflatten
from agent.exits import Exit, exit_code, sentence
from agent.judging.assessment import PolicyDriver
from agent.run_directory import RunDirectory
from agent.td3.networks import Policy
from agent.td3.replay.replay import Replay

WAIT_S = 0.001
"""The collector's look at the step limit while it may not step; an order ends the wait earlier."""


class StopOrderedError(Exception):
    """The learner wants the simulator given back; raised wherever the collector looks for orders."""


class Collector:
    """Obeys one learner."""

    def __init__(self, config: AgentConfig, run: RunDirectory, channel: Channel) -> None:
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
        self._env = WatchedEnv(config, self._status, self._look_for_orders, _leave if self._has_traffic else None)
        self._examiner = Examiner(config, run, self._env, self._policy, self._status)
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
            self._status.doing = Doing.STOPPING
            self._env.close()

    def _turn(self) -> None:
        self._look_for_orders()
        if self._orders:
            self._evaluate(self._orders.popleft())
        elif self._replay.steps < self._pace.step_limit:
            self._step()
        else:
            self._status.doing = Doing.WAITING
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
        self._status.doing = Doing.STEPPING
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


def _obey(channel: Channel) -> Exit:
    """Run a collector and return its exit code; what a new one couldn't mend is reported first."""
    try:
        order = channel.receive(timeout_s=60.0)
        assert isinstance(order, Configure), f"the first order is {order!r}, expected Configure"
        settings = config.validate(order.config, source="the learner's configuration")
        Collector(settings, RunDirectory(Path(order.run_directory)), channel).run(order.rehearse)
    except ChannelClosedError:
        return Exit.FINISHED
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise  # a mistake of ours, or a chance event: the learner tries another collector
        channel.send(Failed(code=code, sentence=sentence(error)))
        return code
    return Exit.FINISHED


def main() -> None:
    """Entry point of the child process."""
    die_with(parent_pid=int(sys.argv[2]))
    torch.set_num_threads(1)
    code = Exit.CRASH
    try:
        code = _obey(Channel(socket.socket(fileno=int(sys.argv[1]))))
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
