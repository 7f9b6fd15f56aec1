"""One collector on a node, seen from the learner's machine: started, polled, ended.

It stands in for a local collector process. It takes the learner's orders, sends it reports, writes the collector's
ring, and copies the node's status into the local status block. Its last report says how it ended. Owns the
acknowledgements. Each runs in a thread.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carla_run.events import CollectorEnd
from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cluster.chunks import UNACKNOWLEDGED, ChunkReceiver
from carla_td3.cluster.node import Answer, Begin, Question
from carla_td3.cluster.waiting import GaveUpError, LostError
from carla_td3.exchange import messages
from carla_td3.exchange.messages import Channel, ChannelClosedError, Ended, Order, Report
from carla_td3.exchange.status import Pace, Status
from carla_td3.exchange.weights import WeightsFile
from carla_td3.exits import exit_code, sentence
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.ring import Ring

if TYPE_CHECKING:
    from carla_td3.cluster.actors import Actors

WAIT_S = 0.002
"""Seconds before the next question, while the collector has taken all steps that it may and there are no orders."""
MAX_WAIT_S = 0.05
LAST_ANSWER_S = 5.0
"""Seconds to wait for the last steps of a collector that was killed."""
CONFIGURE_S = 60.0

ReportNode = Callable[[Mapping[str, Any]], None]


class CollectorProxy:
    """One collector of one run.

    Args:
        actors: returns the cluster; connects if needed.
        channel: to the learner, like a collector process's.
        tell: called with the state of the collector's node.
    """

    def __init__(self, actors: Callable[[], Future[Actors]], channel: Channel, tell: ReportNode) -> None:
        self._connect, self._channel, self._tell = actors, channel, tell
        self._id = uuid.uuid4().hex[:8]
        self._node = ""
        self._seen_steps = self._limit = self._turn = 0
        self._orders: list[Order | Report] = []
        self._killed = False

    def run(self) -> None:
        """Run until the collector ends, and report its end to the learner if the learner is still there."""
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(self._run_to_end())
        self._channel.close()

    def _run_to_end(self) -> Ended:
        try:
            return self._exchange_all()
        except ChannelClosedError:
            raise
        except GaveUpError:
            return Ended(cause="killed", end=CollectorEnd.SIGNAL, signal=signal.SIGKILL)
        except Exception as error:
            code = exit_code(error)
            if code is None:
                traceback.print_exc()
                return _exited(f"{type(error).__name__}: {error}", Exit.CRASH)
            self._channel.send(messages.Failed(code=code, sentence=sentence(error)))
            return _exited(sentence(error), code)

    def _exchange_all(self) -> Ended:
        order = self._channel.receive(CONFIGURE_S)
        assert isinstance(order, messages.Configure), f"the first order is {order!r}, expected Configure"
        settings = config.validate(order.config, source="the learner's configuration")
        self._run, self._number = RunPaths(Path(order.run_directory)), order.collector
        exchange = self._run.exchange
        self._status, self._pace = Status.of(exchange, self._number), Pace.of(exchange, self._number)
        self._status.state = CollectorState.CONNECTING
        stack, privileged = FrameStack.of(settings.environment.camera), privileged_numbers(settings.environment)
        ring = Ring.create(self._run.ring(self._number), settings.replay.capacity, stack, privileged)
        self._receiver = ChunkReceiver(ring)
        try:
            return self._drive(order, settings.simulator.patience_s)
        except LostError as error:
            return self._lost(str(error))
        finally:
            self._receiver.close()

    def _drive(self, order: messages.Configure, patience_s: float) -> Ended:
        connected = self._connect()
        while not connected.done():
            if not self._is_alive_and_wanted():
                raise GaveUpError
            time.sleep(WAIT_S)
        actors = connected.result()
        self._node = actors.node_of(self._number, self._is_alive_and_wanted, patience_s)
        file = WeightsFile(self._run.exchange / "weights.bin")
        version, weights = actors.newest(file)
        seen, head = self._status.read(), self._receiver.head
        begin = Begin(self._id, order, head, seen)
        actor = actors.actor(self._number)
        placed: messages.Placed | messages.Failed = actors.answer_of(
            actor.begin.remote, self._is_alive_and_wanted, begin, weights
        )
        self._channel.send(placed)
        if isinstance(placed, messages.Failed):
            return _exited(placed.sentence, placed.code)
        self._seen_steps = head.steps
        where = {**placed.model_dump(exclude={"kind"}), "collector": self._number}
        while True:
            self._wait_for_higher_limit()
            ask = self._question()
            newest, reference = actors.newest(file)
            answer = self._ask(actors, actor, ask, reference if newest != version else None)
            version = newest
            ended = self._take(answer)
            self._tell({**where, "steps": answer.steps, "seen": dict(answer.simulator)})
            if ended is not None:
                return ended

    def _question(self) -> Question:
        self._turn += 1
        self._limit = self._pace.step_limit
        self._receive_orders()
        orders, self._orders = tuple(self._orders), []
        return Question(self._id, self._turn, self._receiver.head, self._limit, orders, end=self._killed)

    def _ask(self, actors: Actors, actor: Any, ask: Question, weights: Any) -> Answer:
        """Return the answer. If the collector is killed meanwhile, its finished steps are still fetched."""
        if not ask.end:
            with contextlib.suppress(GaveUpError):
                answer: Answer = actors.answer_of(actor.exchange.remote, self._is_wanted, ask, weights)
                return answer
            self._turn += 1
            ask = Question(self._id, self._turn, ask.head, 0, end=True)
        until_s = time.monotonic() + LAST_ANSWER_S
        try:
            last: Answer = actors.answer_of(actor.exchange.remote, lambda: time.monotonic() < until_s, ask, None)
        except GaveUpError:
            raise LostError("it no longer answers") from None
        return last

    def _take(self, answer: Answer) -> Ended | None:
        """Store an answer: the steps first, since a report may refer to them."""
        if answer.ended is not None and answer.ended.end is CollectorEnd.LOST:
            raise LostError(answer.ended.cause)
        if answer.log:
            with self._run.log_of(self._number).open("ab") as log:
                log.write(answer.log)
        if answer.chunk is not None:
            self._receiver.take(answer.chunk)
        self._seen_steps = answer.steps
        self._status.mirror(answer.snapshot)
        for name, content in answer.files.items():
            path = self._run.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for report in answer.reports:
            self._channel.send(report)
        return answer.ended

    def _lost(self, cause: str) -> Ended:
        """Return what was lost with the node: at most the steps that were not acknowledged."""
        here = self._receiver.head.steps
        at_most = max(0, min(self._limit - here, UNACKNOWLEDGED))
        if at_most:
            self._channel.send(
                messages.ChunkLost(node=self._node, at_most=at_most, seen=max(0, self._seen_steps - here))
            )
        where = self._node or "the cluster"
        return Ended(cause=f"lost with its place on {where}: {cause}", end=CollectorEnd.LOST)

    def _wait_for_higher_limit(self) -> None:
        """Wait a moment while the collector has taken all its steps and all have arrived."""
        until_s = time.monotonic() + MAX_WAIT_S
        while (
            self._status.state is CollectorState.WAITING
            and self._receiver.head.steps >= self._pace.step_limit
            and not self._receive_orders(WAIT_S)
            and time.monotonic() < until_s
        ):
            pass

    def _is_alive_and_wanted(self) -> bool:
        """Report a sign of life though nothing drives yet; return whether the collector is still wanted."""
        self._status.alive()
        return self._is_wanted()

    def _is_wanted(self) -> bool:
        self._receive_orders()
        return not self._killed

    def _receive_orders(self, timeout_s: float = 0.0) -> bool:
        """Return whether orders have arrived."""
        while (order := self._channel.receive(timeout_s)) is not None:
            if isinstance(order, messages.Kill):
                self._killed = True
            else:
                self._orders.append(order)
            timeout_s = 0.0
        return self._killed or bool(self._orders)


def _exited(cause: str, code: int) -> Ended:
    return Ended(cause=cause, end=CollectorEnd.EXIT, exit_code=code)
