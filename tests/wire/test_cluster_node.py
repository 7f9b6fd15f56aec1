"""A node without a cluster: a simulator, a collector in it, and its steps sent in chunks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from carla_run.events import CollectorEnd
from carla_run.heartbeat import CollectorState
from carla_td3 import config
from carla_td3.cluster.chunks import UNACKNOWLEDGED, ChunkReceiver
from carla_td3.cluster.node import Answer, Begin, Node, Question
from carla_td3.cluster.simulator import Simulator
from carla_td3.exchange.messages import Configure, EpisodeEnded, Ready, Stop
from carla_td3.exchange.status import Snapshot
from carla_td3.exchange.weights import flatten
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.ring import Ring
from carla_td3.trainer.shares import settings_of
from tests.crowd import PATIENCE_S, until
from tests.wire.launched import own_limits
from tests.wire.trainee import SMALL, running


class Learner:
    """The other side: keeps the ring, asks, takes in."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.config = config.validate(SMALL, "test")
        self.ring = Ring.create(folder, 2000, FrameStack.of(self.config.environment.camera))
        self.received = ChunkReceiver(self.ring)
        self.turn, self.life, self.reports = 0, "", list[Any]()

    def begin(self, life: str) -> None:
        head = self.received.head
        settings = settings_of(self.config, 0, "Lite01", head.steps, head.steps)
        weights = flatten(Policy(self.config.td3.network, FrameStack.of(self.config.environment.camera)).state_dict())
        self.life, self.turn = life, 0
        order = Configure(config=settings, run_directory="", collector=0, rehearse=False, until_episode=None)
        begin = Begin(life, order, head, Snapshot(CollectorState.ABSENT, 0, 0, False, 0.0, 0.0))
        assert self.node.begin(begin, weights) == self.node.begin(begin, weights), "asked again, it says the same"

    def question(self, limit: int, **more: Any) -> Question:
        self.turn += 1
        return Question(self.life, self.turn, self.received.head, limit, **more)

    def take(self, told: Answer) -> Answer:
        if told.chunk is not None:
            self.received.take(told.chunk)
        self.reports += told.reports
        return told

    def drive(self, limit: int) -> None:
        self.until(lambda _: self.received.head.steps >= limit, limit)

    def until(self, condition: Callable[[Answer], bool], limit: int, **more: Any) -> Answer:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(told := self.take(self.node.exchange(self.question(limit, **more)))):
            assert told.ended is None, told
            assert time.monotonic() < deadline, told
        return told


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node(("--simulator", "carla-lite", "--map", "Lite01"))
    yield node
    node.close()


def family() -> list[psutil.Process]:
    """Return what this process has started, but for what forks other tests' trainings."""
    found = psutil.Process().children(recursive=True)
    return [each for each in found if not any("multiprocessing." in word for word in each.cmdline())]


def test_a_node_hands_out_each_step_once_whatever_answer_is_lost(node: Node, tmp_path: Path) -> None:
    learner = Learner(node, tmp_path / "ring")
    learner.begin("one")
    learner.drive(30)
    assert isinstance(learner.reports[0], Ready)
    asked = learner.question(60)
    lost = node.exchange(asked)
    assert node.exchange(asked) is lost, "the same question has the same answer"
    learner.take(lost)
    learner.drive(60)
    ended = learner.until(lambda told: told.ended is not None, 60, orders=(Stop(),)).ended
    assert ended is not None
    assert ended.exit_code == 0
    assert learner.received.head.steps == 60
    rows = learner.ring.rows[: learner.received.head.rows]
    assert (np.diff(rows["step"].astype(int)) == (rows["episode_step"][1:] > 0)).all()
    assert any(isinstance(each, EpisodeEnded) for each in learner.reports)
    assert Replay.open(tmp_path / "ring").steps == 60


def test_a_collector_is_never_further_ahead_than_may_be_lost(node: Node, tmp_path: Path) -> None:
    learner = Learner(node, tmp_path / "ring")
    learner.begin("one")
    # Nothing is acknowledged: the answers are all lost.
    deadline = time.monotonic() + PATIENCE_S
    told = node.exchange(learner.question(1000))
    while told.steps < UNACKNOWLEDGED and time.monotonic() < deadline:
        told = node.exchange(learner.question(1000))
    time.sleep(0.5)
    assert node.exchange(learner.question(1000)).steps == UNACKNOWLEDGED
    learner.drive(UNACKNOWLEDGED)


def test_a_collector_that_was_killed_leaves_all_that_it_finished_and_the_next_goes_on(
    node: Node, tmp_path: Path
) -> None:
    learner = Learner(node, tmp_path / "ring")
    learner.begin("one")
    learner.drive(20)
    (collector,) = [each for each in family() if "carla_td3.collector" in each.cmdline()]
    os.kill(collector.pid, signal.SIGKILL)
    ended = learner.until(lambda told: told.ended is not None, 1000).ended
    assert ended is not None
    assert (ended.end, ended.signal) == (CollectorEnd.SIGNAL, signal.SIGKILL)
    kept = learner.received.head.steps
    assert node.exchange(learner.question(1000)).ended is not None
    learner.begin("two")
    old = Question("one", 99, learner.received.head, 1000)
    assert node.exchange(old).ended is not None, "of an earlier life nothing is told"
    learner.drive(kept + 20)
    steps = learner.ring.rows["step"][: learner.received.head.rows].astype(int)
    assert sorted(set(steps[steps > 0])) == list(range(1, learner.received.head.steps + 1))


def test_a_node_that_ends_takes_collector_and_simulator_along(node: Node, tmp_path: Path) -> None:
    learner = Learner(node, tmp_path / "ring")
    learner.begin("one")
    learner.drive(5)
    pids = [each.pid for each in family()]
    assert len(pids) >= 4, "a command, its shim, a simulator, a collector"
    node.close()
    until(lambda: not any(map(running, pids)))


def test_a_simulator_that_is_killed_is_started_again_and_the_collector_drives_on(node: Node, tmp_path: Path) -> None:
    learner = Learner(node, tmp_path / "ring")
    learner.begin("one")
    learner.drive(20)
    (simulator,) = [each for each in family() if each.cmdline()[2:3] == ["carla_lite"]]
    os.kill(simulator.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while learner.received.head.steps < 60 and time.monotonic() < deadline:
        told = learner.take(node.exchange(learner.question(60)))
        if told.ended is not None:  # traffic in the collector's process can't outlive its simulator
            learner.begin(f"life {learner.turn}")
    assert learner.received.head.steps == 60
    assert node.exchange(learner.question(60)).simulator["restarts"] == 1


def test_a_node_starts_the_simulator_that_was_chosen_though_a_carla_is_installed(tmp_path: Path) -> None:
    own = own_limits(tmp_path, {"simulator.command": "sh -c 'echo CARLA; sleep 600'"})
    folder = tmp_path / "node"
    folder.mkdir()
    simulator = Simulator(folder, ("--simulator", "carla-lite", *own))
    try:
        simulator.start()
        until(lambda: simulator.seen["state"] == "healthy")
        assert (folder / "logs" / "simulator.log").read_text().startswith("carla-lite: Lite01 on ")
    finally:
        simulator.close()
