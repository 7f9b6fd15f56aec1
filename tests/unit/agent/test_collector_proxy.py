"""A collector on another machine, as the learner keeps its books: what counts, what is lost, how it ends."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from carla_run.events import CollectorEnd
from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cluster.__main__ import Driver
from carla_td3.cluster.chunks import UNACKNOWLEDGED, cut
from carla_td3.cluster.collector_proxy import CollectorProxy
from carla_td3.cluster.node import Answer, Begin, Question
from carla_td3.cluster.waiting import GaveUpError, LostError
from carla_td3.config import ClusterConfig, dump
from carla_td3.exchange.messages import Channel, Configure, Ended, Failed, Kill, Placed, ReachedLastEpisode, Stop
from carla_td3.exchange.status import Pace, Snapshot, Status
from carla_td3.exchange.weights import WeightsFile
from carla_td3.exits import AgentError
from carla_td3.td3.replay.replay import Replay
from tests.crowd import PATIENCE_S
from tests.unit.agent.test_chunks import There

PLACED = Placed(node="worker-1", incarnation="1", simulator="127.0.0.1:2000")
SETTINGS = config.validate({"replay": {"capacity": 1000}}, "test")
Answering = Callable[["Cluster", Question], Answer]


class Cluster:
    """A cluster of one node, which answers as the test says."""

    def __init__(self, folder: Path, answer: Answering) -> None:
        self.folder, self.script = folder, answer
        self.there: There | None = None
        self.asked: list[Question] = []
        self.found: Exception | None = None

    def actor(self, _number: int) -> Any:
        begin, exchange = SimpleNamespace(remote=self.begin), SimpleNamespace(remote=self.exchange)
        return SimpleNamespace(begin=begin, exchange=exchange)

    def node_of(self, *_: object) -> str:
        if self.found is not None:
            raise self.found
        return "worker-1"

    def newest(self, file: WeightsFile) -> tuple[int, Any]:
        return file.version, "reference"

    def answer_of(self, method: Callable[..., Any], still_wanted: Callable[[], bool], *arguments: Any) -> Any:
        if not still_wanted():
            raise GaveUpError
        return method(*arguments)

    def begin(self, order: Begin, _weights: object) -> Placed:
        self.there = There(self.folder / order.process_id, order.head)
        return PLACED

    def exchange(self, ask: Question, _weights: object) -> Answer:
        self.asked.append(ask)
        return self.script(self, ask)

    def told(self, ask: Question, drives: int = 0, **more: Any) -> Answer:
        """Drive so many steps, and hand out what isn't acknowledged."""
        assert self.there is not None
        self.there.drive(drives)
        there = Snapshot(CollectorState.STEPPING, 3, 77, in_call=False, silent_s=0.0, limit_s=20.0)
        return Answer(there, self.there.replay.steps, cut(self.there.ring, ask.head.rows), **more)


class Learner:
    """The trainer's ends of a collector."""

    def __init__(self, tmp_path: Path, answer: Answering) -> None:
        self.run = RunPaths(tmp_path / "run")
        self.run.exchange.mkdir(parents=True)
        WeightsFile.create(self.run.exchange / "weights.bin", 4).publish(np.zeros(4, np.float32), 0)
        self.status, self.pace = Status.of(self.run.exchange), Pace.of(self.run.exchange)
        self.pace.step_limit = 1000
        self.cluster = Cluster(tmp_path, answer)
        self.told: list[Any] = []

    def live(self, *orders: Stop | Kill) -> tuple[list[Any], Ended]:
        """Return what a collector reports that has these orders from the start, and how it ends."""
        ours, theirs = socket.socketpair()
        self.channel, connected = Channel(ours), Future[Any]()
        connected.set_result(self.cluster)
        folder = str(self.run.path)
        first = Configure(config=dump(SETTINGS), run_directory=folder, collector=0, rehearse=False, until_episode=None)
        for order in (first, *orders):
            self.channel.send(order)
        proxy = CollectorProxy(lambda: connected, Channel(theirs), self.told.append)
        thread = threading.Thread(target=proxy.run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        while self.channel.gather():
            pass
        *reports, ended = (self.channel.receive() for _ in range(len(self.channel._messages)))
        assert isinstance(ended, Ended)
        return reports, ended

    @property
    def ring(self) -> Replay:
        return Replay.open(self.run.replay)

    def assert_each_step_once(self, steps: int) -> None:
        rows = self.ring._ring.rows[: self.ring.rows]
        assert rows["reward"][rows["episode_step"] > 0].tolist() == list(range(1, steps + 1))


CRASH = Ended(cause="exit code 1", end=CollectorEnd.EXIT, exit_code=1)


def test_steps_and_reports_reach_the_learner_and_so_does_the_end(tmp_path: Path) -> None:
    def answer(cluster: Cluster, ask: Question) -> Answer:
        last = len(cluster.asked) == 3
        return cluster.told(
            ask, drives=20, reports=(ReachedLastEpisode(),), ended=CRASH if last else None, log=b"word\n"
        )

    learner = Learner(tmp_path, answer)
    reports, ended = learner.live()
    assert reports == [PLACED, ReachedLastEpisode(), ReachedLastEpisode(), ReachedLastEpisode()]
    assert ended == CRASH
    learner.assert_each_step_once(60)
    assert [ask.head.steps for ask in learner.cluster.asked] == [0, 20, 40], "what is asked after is acknowledged"
    assert [ask.turn for ask in learner.cluster.asked] == [1, 2, 3]
    assert learner.run.collector_log.read_text() == "word\n" * 3
    seen = learner.status.read()
    assert (seen.state, seen.episodes, seen.ticks) == (CollectorState.STEPPING, 3, 77)
    assert learner.told[-1]["node"] == "worker-1"
    assert learner.told[-1]["steps"] == 60


@pytest.mark.parametrize("death", [LostError("worker died"), "another incarnation"])
def test_what_a_lost_node_had_is_counted_and_the_next_one_drives_it_again(tmp_path: Path, death: object) -> None:
    def answer(cluster: Cluster, ask: Question) -> Answer:
        if len(cluster.asked) == 1:
            return cluster.told(ask, drives=18)
        if len(cluster.asked) == 2:
            told = cluster.told(ask, drives=9)
            return Answer(told.snapshot, told.steps)  # driven, and not sent yet
        if len(cluster.asked) == 3:
            if isinstance(death, LostError):
                raise death
            lost = Ended(cause="the node no longer has this collector", end=CollectorEnd.LOST)
            return Answer(cluster.told(ask).snapshot, ask.head.steps, ended=lost)
        return cluster.told(ask, drives=30, ended=CRASH)

    learner = Learner(tmp_path, answer)
    reports, ended = learner.live()
    assert ended.end is CollectorEnd.LOST
    assert "worker-1" in ended.cause
    lost = reports[-1]
    assert (lost.kind, lost.node, lost.at_most, lost.seen) == ("chunk_lost", "worker-1", UNACKNOWLEDGED, 9)
    _, ended = learner.live()
    assert ended == CRASH
    learner.assert_each_step_once(48)


def test_where_little_was_allowed_little_can_be_lost(tmp_path: Path) -> None:
    def answer(cluster: Cluster, ask: Question) -> Answer:
        if len(cluster.asked) == 1:
            return cluster.told(ask, drives=18)
        raise LostError("gone")

    learner = Learner(tmp_path, answer)
    learner.pace.step_limit = 25
    reports, _ = learner.live()
    assert (reports[-1].at_most, reports[-1].seen) == (7, 0)


def test_one_that_is_killed_hands_out_what_it_has_finished(tmp_path: Path) -> None:
    def answer(cluster: Cluster, ask: Question) -> Answer:
        if len(cluster.asked) == 2:
            learner.channel.send(Kill())
        return cluster.told(ask, drives=12, ended=CRASH if ask.end else None)

    learner = Learner(tmp_path, answer)
    reports, ended = learner.live(Kill())
    assert reports == []
    assert ended.signal == 9, "killed before it began"
    _, ended = learner.live()
    assert ended == CRASH
    assert [ask.end for ask in learner.cluster.asked] == [False, False, True]
    assert learner.cluster.asked[-1].orders == ()
    learner.assert_each_step_once(36)


def test_orders_are_passed_on(tmp_path: Path) -> None:
    learner = Learner(tmp_path, lambda cluster, ask: cluster.told(ask, drives=1, ended=CRASH if ask.orders else None))
    learner.live(Stop())
    assert learner.cluster.asked[-1].orders == (Stop(),)


def test_without_a_node_the_learner_is_told_in_a_sentence(tmp_path: Path) -> None:
    learner = Learner(tmp_path, lambda cluster, ask: cluster.told(ask))
    learner.cluster.found = AgentError("No node had a simulator.", Exit.NO_SIMULATOR)
    reports, ended = learner.live()
    assert reports == [Failed(code=Exit.NO_SIMULATOR, sentence="No node had a simulator.")]
    assert ended.exit_code == Exit.NO_SIMULATOR


def test_a_simulator_that_cannot_be_started_on_its_node_is_told_too(tmp_path: Path) -> None:
    learner = Learner(tmp_path, lambda cluster, ask: cluster.told(ask))
    failed = Failed(code=Exit.NO_SIMULATOR, sentence="The simulator can't be started on its node.")
    learner.cluster.begin = lambda *_: failed  # type: ignore[assignment,method-assign]
    ended = Ended(cause=failed.sentence, end=CollectorEnd.EXIT, exit_code=Exit.NO_SIMULATOR)
    assert learner.live() == ([failed], ended)


def test_without_ray_it_says_how_to_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "carla_td3.cluster.actors", raising=False)
    driver = Driver(RunPaths(tmp_path), ClusterConfig(address="127.0.0.1:6379"))
    first = driver._connected()
    error = first.exception(timeout=PATIENCE_S)
    assert isinstance(error, AgentError)
    assert error.code is Exit.BAD_CONFIG
    assert "pip install '.[ray]'" in str(error)
    assert driver._connected() is not first, "the next collector tries again"
