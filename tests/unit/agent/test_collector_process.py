"""A collector on another machine that falls silent: lost with its node, or hung there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from carla_run.events import CollectorEnd
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.exchange.messages import Channel, Ended, Kill, ReachedLastEpisode
from carla_td3.exchange.status import Status
from carla_td3.trainer import remote
from carla_td3.trainer.collector_process import CollectorProcess
from carla_td3.trainer.remote import RemoteCollector
from tests.crowd import PATIENCE_S

SETTINGS = config.validate({"collector": {"start_limit_s": 0.01}}, "test")


LOST = Ended(cause="lost with its place on worker-1: it no longer answers", end=CollectorEnd.LOST)
KILLED = Ended(cause="killed", end=CollectorEnd.SIGNAL, signal=9)


def collector(tmp_path: Path, answer: Callable[[Channel], object]) -> CollectorProcess:
    """Return a started collector whose place on a node says nothing until it is killed, and then this."""
    lives: list[threading.Thread] = []

    def live(channel: Channel) -> None:
        while not isinstance(channel.receive(PATIENCE_S), Kill):
            pass
        answer(channel)
        channel.close()

    def launch(ours: Channel, theirs: socket.socket) -> RemoteCollector:
        lives.append(threading.Thread(target=live, args=(Channel(theirs.dup()),), daemon=True))
        lives[0].start()
        return RemoteCollector(ours, lambda: None)

    run = RunPaths(tmp_path)
    run.exchange.mkdir(parents=True)
    made = CollectorProcess(SETTINGS, run, Status.of(run.exchange), 0, launch)
    made.start({}, None, rehearse=False)
    return made


@pytest.mark.parametrize(("end", "called"), [(LOST, CollectorEnd.LOST), (KILLED, CollectorEnd.HUNG)])
def test_one_that_is_silent_is_hung_unless_its_node_is_gone(tmp_path: Path, end: Ended, called: CollectorEnd) -> None:
    silent = collector(tmp_path, lambda channel: channel.send(end))
    while (ended := silent.ended()) is None:
        time.sleep(0.005)
    assert ended.end is called
    assert (ended == end) is (called is CollectorEnd.LOST)
    silent.close()


def test_what_it_said_before_its_end_is_still_heard(tmp_path: Path) -> None:
    def answer(channel: Channel) -> None:
        for message in (ReachedLastEpisode(), KILLED):
            channel.send(message)

    killed = collector(tmp_path, answer)
    killed.kill()
    assert killed.reports() == [ReachedLastEpisode(), KILLED]
    assert killed.ended() == KILLED, "though it was heard already"


def test_where_its_driver_ends_it_is_lost(tmp_path: Path) -> None:
    alone = collector(tmp_path, lambda _: None)
    alone.kill()
    assert alone.ended() == Ended(cause="its driver ended", end=CollectorEnd.LOST)


def test_a_driver_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "KILLED_S", 0.01)
    release = threading.Event()
    silent = collector(tmp_path, lambda _: release.wait(PATIENCE_S))
    silent.kill()
    assert silent.ended() == Ended(cause="its driver hangs", end=CollectorEnd.LOST)
    release.set()
