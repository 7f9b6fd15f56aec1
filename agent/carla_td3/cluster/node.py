"""A simulator and a collector process on a node of a cluster, run by a Ray actor. A process that ended can be replaced
by a new one.

The collector is the same program as on the learner's machine, started by the same ``CollectorProcess``. It writes a
small ring (replay file) that begins where the learner's ends; finished rows are sent in chunks. Doesn't import Ray.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carla_run.events import CollectorEnd
from carla_run.exits import ExitError
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.cluster.chunks import ROWS, STEPS, UNACKNOWLEDGED, Chunk, Head, begin_at, cut
from carla_td3.cluster.simulator import Simulator
from carla_td3.cluster.versions import Versions
from carla_td3.config import validate
from carla_td3.exchange.messages import Configure, Ended, Evaluated, Failed, Order, Placed, Report, Stop
from carla_td3.exchange.status import Pace, Snapshot, Status
from carla_td3.exchange.weights import FloatArray, WeightsFile
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.ring import Ring
from carla_td3.trainer.collector_process import CollectorProcess

PREFIX = "carla-td3-collector-"
"""Prefix of the temporary folders of this module; the id of the process that made them follows."""
REPORT_WAIT_S = 0.02
"""Longest wait for one report of the collector process, in seconds."""
ANSWER_S = 0.25
"""Longest time that a question waits for news, in seconds. Then the answer has none."""
OLDEST_S = 1.0
"""Longest time that a finished step waits until its chunk is full, in seconds."""
LOG_BYTES = 1 << 16
"""Bytes of the collector's log that an answer carries."""


@dataclass(frozen=True)
class Begin:
    """Order to start a collector."""

    process_id: str
    """Id of this collector's process. Questions with another id are refused."""
    order: Configure
    head: Head
    """End of the learner's ring."""
    seen: Snapshot
    """Counts of episodes and ticks so far."""


@dataclass(frozen=True)
class Question:
    """One question of the learner's machine."""

    process_id: str
    turn: int
    """Number of the question. If the answer was lost, the same number gets the same answer again."""
    head: Head
    """End of the learner's ring on disk. All rows before it are acknowledged."""
    step_limit: int
    orders: tuple[Order | Report, ...] = ()
    end: bool = False
    """Whether to kill the collector and return its last steps."""


@dataclass(frozen=True)
class Answer:
    """One answer of the node."""

    snapshot: Snapshot
    steps: int
    """Rows in the node's ring."""
    chunk: Chunk | None = None
    reports: tuple[Order | Report, ...] = ()
    ended: Ended | None = None
    """How the collector ended; set in the last answer."""
    log: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the run directory that an evaluation wrote."""
    simulator: Mapping[str, Any] = field(default_factory=dict)


class _NodeCollector:
    """One collector process on this node."""

    def __init__(self, begin: Begin, folder: Path, settings: Mapping[str, Any], weights: FloatArray) -> None:
        self.id, self._number = begin.process_id, begin.order.collector
        config = validate(settings, source="the learner's configuration")
        self._run = run = RunPaths(folder)
        run.exchange.mkdir(parents=True)
        stack = FrameStack.of(config.environment.camera)
        with_lock = Ring.create(run.ring(self._number), ROWS, stack, privileged_numbers(config.environment))
        begin_at(with_lock, begin.head)
        assert with_lock.lock is not None
        with_lock.lock.close()  # from here on the collector process holds the lock
        self._ring = Ring.open(run.ring(self._number), writable=False)
        self._status, self._pace = Status.of(run.exchange, self._number), Pace.of(run.exchange, self._number)
        self._status.episodes, self._status.ticks = begin.seen.episodes, begin.seen.ticks
        self._weights = WeightsFile.create(run.exchange / "weights.bin", weights.size)
        self._weights.publish(weights, 0)
        self._process = CollectorProcess(config, run, self._status, self._number)
        self._process.start(settings, begin.order.until_episode, begin.order.rehearse)
        self._log_read = 0
        self._turn, self._last_answer = -1, Answer(self._status.read(), begin.head.steps)
        self._waits_since_s: float | None = None
        """When the oldest finished step that wasn't sent was first seen."""

    def answer(self, ask: Question, weights: FloatArray | None, simulator: Simulator) -> Answer:
        """Pass on orders, weights and acknowledgement. Wait up to ``ANSWER_S`` for news, and return it."""
        if ask.turn == self._turn:
            return self._last_answer
        if weights is not None:
            self._weights.publish(weights, 0)
        self._pace.step_limit = min(ask.step_limit, ask.head.steps + UNACKNOWLEDGED)
        for order in ask.orders:
            if isinstance(order, Stop):
                self._process.ask_to_stop()
            else:
                self._process.send(order)
        if ask.end:
            self._process.kill()
        self._turn, self._last_answer = ask.turn, self._found(ask.head, simulator)
        return self._last_answer

    def close(self) -> None:
        """End the collector and remove its files."""
        self._process.close()
        if self._ring.lock is not None:
            self._ring.lock.close()
        shutil.rmtree(self._run.path, ignore_errors=True)

    def _found(self, acknowledged: Head, simulator: Simulator) -> Answer:
        until_s = time.monotonic() + ANSWER_S
        while True:
            # Read the end first. Then log and steps, which are read after it, are complete.
            ended = self._process.ended()
            reports = tuple(self._process.reports(0.0 if ended else REPORT_WAIT_S))
            chunk = self._chunk(acknowledged, at_once=bool(ended or reports))
            if ended or reports or chunk or self._reached_step_limit or time.monotonic() >= until_s:
                break
        if ended is not None and (ended.end is CollectorEnd.HUNG or ended.signal == signal.SIGABRT):
            simulator.restart()
        files = self._files() if any(isinstance(each, Evaluated) for each in reports) else {}
        steps = Head.of(self._ring).steps
        return Answer(self._status.read(), steps, chunk, reports, ended, self._log(), files, simulator.seen)

    def _chunk(self, acknowledged: Head, at_once: bool) -> Chunk | None:
        steps, now_s = Head.of(self._ring).steps, time.monotonic()
        if steps <= acknowledged.steps:
            self._waits_since_s = None
            return None
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        waits = self._status.state is not CollectorState.STEPPING or steps >= self._pace.step_limit
        late = now_s - self._waits_since_s >= OLDEST_S
        if not (at_once or waits or late or steps - acknowledged.steps >= STEPS):
            return None
        self._waits_since_s = None
        return cut(self._ring, acknowledged.rows)

    @property
    def _reached_step_limit(self) -> bool:
        """Whether the collector has taken all allowed steps, and waits for a higher limit."""
        return self._status.state is CollectorState.WAITING and Head.of(self._ring).steps >= self._pace.step_limit

    def _log(self) -> bytes:
        try:
            with self._run.log_of(self._number).open("rb") as file:
                file.seek(self._log_read)
                said = file.read(LOG_BYTES)
        except OSError:
            return b""
        self._log_read += len(said)
        return said

    def _files(self) -> dict[str, bytes]:
        run = self._run
        paths = [run.evaluation_json, run.evaluation_csv, *(run.videos.rglob("*") if run.videos.is_dir() else ())]
        return {str(path.relative_to(run.path)): path.read_bytes() for path in paths if path.is_file()}


class Node:
    """The Ray actor's side of one collector on a node. ``incarnation`` changes with each restart of the actor.

    Args:
        simulator: options of ``carla-launcher simulator``.
    """

    def __init__(self, simulator: tuple[str, ...] = ()) -> None:
        _sweep()
        self.incarnation = uuid.uuid4().hex[:8]
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._simulator = Simulator(self._folder, simulator)
        self._collector: _NodeCollector | None = None
        atexit.register(self.close)

    def versions(self) -> tuple[str, Versions]:
        """Return this node's name and its versions."""
        return socket.gethostname(), Versions.here()

    def begin(self, begin: Begin, weights: FloatArray) -> Placed | Failed:
        """End the previous collector and start a new one. If that fails, return why.

        A repeated call, after its answer was lost, returns the same answer.
        """
        try:
            return self._begun(begin, weights)
        except ExitError as error:  # returned as a message: Ray would lose the exit code of an exception
            return Failed(code=error.code, sentence=str(error))

    def _begun(self, begin: Begin, weights: FloatArray) -> Placed:
        if self._collector is not None and self._collector.id != begin.process_id:
            self._end()
        host, port = self._simulator.start()
        if self._collector is None:
            settings = dict(begin.order.config)
            settings["simulator"] = {**settings["simulator"], "host": host, "port": port}
            settings["replay"] = {**settings["replay"], "capacity": ROWS}
            self._collector = _NodeCollector(begin, self._folder / begin.process_id, settings, weights)
        return Placed(node=socket.gethostname(), incarnation=self.incarnation, simulator=f"{host}:{port}")

    def exchange(self, ask: Question, weights: FloatArray | None = None) -> Answer:
        """Pass on orders, weights and acknowledgement. Wait up to ``ANSWER_S`` for news, and return it."""
        if self._collector is None or self._collector.id != ask.process_id:
            absent = Snapshot(CollectorState.ABSENT, 0, 0, in_call=False, silent_s=0.0, limit_s=0.0)
            lost = Ended(cause="the node no longer has this collector", end=CollectorEnd.LOST)
            return Answer(absent, ask.head.steps, ended=lost)
        return self._collector.answer(ask, weights, self._simulator)

    def close(self) -> None:
        """End the collector and the simulator, and remove their files."""
        self._end()
        self._simulator.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        if self._collector is not None:
            self._collector.close()
        self._collector = None


def _sweep() -> None:
    """Remove the folders of processes that have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
