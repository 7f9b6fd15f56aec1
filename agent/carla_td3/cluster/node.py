"""A collector's node: what a Ray actor does there. Holds the simulator, and one collector's process after another.

The collector is the very process that a learner's own machine runs, held by the same ``CollectorProcess``; its ring is
a small one that begins where the learner's ends, and what it publishes there goes out in chunks. Knows no Ray.
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
from carla_td3 import config
from carla_td3.cluster.chunks import ROWS, STEPS, UNACKNOWLEDGED, Chunk, Head, begin_at, cut
from carla_td3.cluster.simulator import Simulator
from carla_td3.cluster.versions import Versions
from carla_td3.exchange.messages import Ended, Evaluated, Failed, Order, Placed, Report, Stop
from carla_td3.exchange.status import Pace, Snapshot, Status
from carla_td3.exchange.weights import FloatArray, WeightsFile
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.layout import privileged_numbers
from carla_td3.td3.replay.ring import Ring
from carla_td3.trainer.collector_process import CollectorProcess

PREFIX = "carla-td3-collector-"
"""Of the folders of this machine's temporary files, followed by the id of the process that made it."""
LOOK_S = 0.02
ANSWER_S = 0.25
"""A question is answered after this long at the latest, with nothing if there is nothing."""
OLDEST_S = 1.0
"""A finished step waits so long for others of its chunk."""
LOG_BYTES = 1 << 16
"""Of what a collector says, with each answer."""


@dataclass(frozen=True)
class Begin:
    """A collector's start."""

    life: str
    """Its id: no other one's questions are answered."""
    number: int
    settings: Mapping[str, Any]
    until_episode: int | None
    rehearse: bool
    head: Head
    """Where the learner's ring ends."""
    episodes: int
    """As of ``Snapshot``, as are the ticks."""
    ticks: int


@dataclass(frozen=True)
class Ask:
    """A question."""

    life: str
    turn: int
    """Its number. Asked again, where the answer was lost, it gets the same answer."""
    head: Head
    """What lies on the learner's disk, and so is acknowledged."""
    step_limit: int
    orders: tuple[Order | Report, ...] = ()
    end: bool = False
    """Kill the collector, and hand out the rest."""


@dataclass(frozen=True)
class Told:
    """An answer."""

    snapshot: Snapshot
    steps: int
    """In the node's ring."""
    chunk: Chunk | None = None
    reports: tuple[Order | Report, ...] = ()
    ended: Ended | None = None
    """After this nothing follows."""
    log: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Of the run's directory: what an evaluation left."""
    simulator: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Life:
    """One collector."""

    id: str
    number: int
    run: RunPaths
    process: CollectorProcess
    status: Status
    pace: Pace
    ring: Ring
    weights: WeightsFile
    log_read: int = 0
    answered: int = -1
    """The last turn."""
    told: Told | None = None
    waits_since_s: float | None = None
    """How long ago the oldest finished step that wasn't sent was seen."""

    def close(self) -> None:
        self.process.close()
        if self.ring.lock is not None:
            self.ring.lock.close()
        shutil.rmtree(self.run.path, ignore_errors=True)


class Node:
    """One collector's place on a node; ``incarnation`` tells one from the next.

    Args:
        simulator: options of ``launch.py simulator``.
    """

    def __init__(self, simulator: tuple[str, ...] = ()) -> None:
        _sweep()
        self.incarnation = uuid.uuid4().hex[:8]
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._simulator = Simulator(self._folder, simulator)
        self._life: _Life | None = None
        atexit.register(self.close)

    def versions(self) -> tuple[str, Versions]:
        """Return this node's name, and what it runs."""
        return socket.gethostname(), Versions.here()

    def begin(self, order: Begin, weights: FloatArray) -> Placed | Failed:
        """Start a collector, in the place of the last one, or say why it can't be started here.

        Asked again, where the answer was lost, it says the same again.
        """
        try:
            return self._begun(order, weights)
        except ExitError as error:  # in words: an exception loses its code on the way
            return Failed(code=error.code, sentence=str(error))

    def _begun(self, order: Begin, weights: FloatArray) -> Placed:
        if self._life is not None and self._life.id != order.life:
            self._life.close()
            self._life = None
        host, port = self._simulator.start()
        placed = Placed(node=socket.gethostname(), incarnation=self.incarnation, simulator=f"{host}:{port}")
        if self._life is not None:
            return placed
        settings = {**order.settings}
        settings["simulator"] = {**settings["simulator"], "host": host, "port": port}
        settings["replay"] = {**settings["replay"], "capacity": ROWS}
        resolved = config.validate(settings, source="the learner's configuration")
        self._life = life = self._prepared(order, resolved, weights)
        life.process.start(settings, order.until_episode, order.rehearse)
        return placed

    def exchange(self, ask: Ask, weights: FloatArray | None = None) -> Told:
        """Take orders, weights and acknowledgement; return what there is, or what comes in a moment."""
        life = self._life
        if life is None or life.id != ask.life:
            nobody = Snapshot(CollectorState.ABSENT, 0, 0, in_call=False, silent_s=0.0, limit_s=0.0)
            lost = Ended(cause="its node knows nothing of it", end=CollectorEnd.LOST)
            return Told(nobody, ask.head.steps, ended=lost)
        if life.told is not None and life.answered == ask.turn:
            return life.told
        if weights is not None:
            life.weights.publish(weights, 0)
        life.pace.step_limit = min(ask.step_limit, ask.head.steps + UNACKNOWLEDGED)
        for order in ask.orders:
            if isinstance(order, Stop):
                life.process.ask_to_stop()
            else:
                life.process.send(order)
        if ask.end:
            life.process.kill()
        life.answered, life.told = ask.turn, self._told(life, ask.head)
        return life.told

    def close(self) -> None:
        """End the collector and the simulator; their files go."""
        if self._life is not None:
            self._life.close()
            self._life = None
        self._simulator.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _prepared(self, order: Begin, resolved: config.AgentConfig, weights: FloatArray) -> _Life:
        run = RunPaths(self._folder / order.life)
        run.exchange.mkdir(parents=True)
        stack = FrameStack.of(resolved.environment.camera)
        with_lock = Ring.create(run.ring(order.number), ROWS, stack, privileged_numbers(resolved.environment))
        begin_at(with_lock, order.head)
        assert with_lock.lock is not None
        with_lock.lock.close()  # the collector's from here on
        ring = Ring.open(run.ring(order.number), writable=False)
        status, pace = Status.of(run.exchange, order.number), Pace.of(run.exchange, order.number)
        status.episodes, status.ticks = order.episodes, order.ticks
        file = WeightsFile.create(run.exchange / "weights.bin", weights.size)
        file.publish(weights, 0)
        process = CollectorProcess(resolved, run, status, order.number)
        return _Life(order.life, order.number, run, process, status, pace, ring, file)

    def _told(self, life: _Life, acknowledged: Head) -> Told:
        until_s = time.monotonic() + ANSWER_S
        while True:
            # Its end first, its words and steps after it: then they are the last ones.
            ended = life.process.ended()
            reports = tuple(life.process.reports(0.0 if ended else LOOK_S))
            chunk = self._chunk(life, acknowledged, at_once=bool(ended or reports))
            if ended or reports or chunk or _rests(life) or time.monotonic() >= until_s:
                break
        if ended is not None and (ended.end is CollectorEnd.HUNG or ended.signal == signal.SIGABRT):
            self._simulator.restart()
        return Told(
            life.status.read(),
            Head.of(life.ring).steps,
            chunk,
            reports,
            ended,
            self._log(life),
            _files(life.run) if any(isinstance(each, Evaluated) for each in reports) else {},
            self._simulator.seen,
        )

    def _chunk(self, life: _Life, acknowledged: Head, at_once: bool) -> Chunk | None:
        steps, now_s = Head.of(life.ring).steps, time.monotonic()
        if steps <= acknowledged.steps:
            life.waits_since_s = None
            return None
        if life.waits_since_s is None:
            life.waits_since_s = now_s
        waits = life.status.state is not CollectorState.STEPPING or steps >= life.pace.step_limit
        late = now_s - life.waits_since_s >= OLDEST_S
        if not (at_once or waits or late or steps - acknowledged.steps >= STEPS):
            return None
        life.waits_since_s = None
        return cut(life.ring, acknowledged.rows)

    def _log(self, life: _Life) -> bytes:
        try:
            with life.run.log_of(life.number).open("rb") as file:
                file.seek(life.log_read)
                said = file.read(LOG_BYTES)
        except OSError:
            return b""
        life.log_read += len(said)
        return said


def _rests(life: _Life) -> bool:
    """Return whether a collector has taken all steps that it may: it waits for the next question."""
    waits = life.status.state is CollectorState.WAITING
    return waits and Head.of(life.ring).steps >= life.pace.step_limit


def _files(run: RunPaths) -> dict[str, bytes]:
    paths = [run.evaluation_json, run.evaluation_csv, *(run.videos.rglob("*") if run.videos.is_dir() else ())]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in paths if path.is_file()}


def _sweep() -> None:
    """Remove the folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
