"""A collector on another machine that falls silent: lost with its node, or hung there."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from carla_run.events import CollectorEnd
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.exchange.ended import Ended
from carla_td3.exchange.status import Status
from carla_td3.trainer.collector_process import CollectorProcess
from carla_td3.trainer.remote import Cluster, RemoteCollector

SETTINGS = config.validate({"collector": {"start_limit_s": 0.01}}, "test")


class SilentCluster(Cluster):
    """Its collectors say nothing but, once they are killed, how they ended."""

    def __init__(self, run: RunPaths, end: Ended) -> None:
        super().__init__(SETTINGS, run)
        self.end = end

    def start(self, channel: socket.socket) -> RemoteCollector:  # noqa: ARG002
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._live, args=(theirs,), daemon=True).start()
        return RemoteCollector(ours, lambda: None)

    def _live(self, control: socket.socket) -> None:
        with control:
            assert control.recv(16) == b"kill"
            control.send(self.end.said())


@pytest.mark.parametrize(
    ("end", "called"),
    [
        (Ended("lost with its place on worker-1: it doesn't answer any more", CollectorEnd.LOST), CollectorEnd.LOST),
        (Ended("killed", CollectorEnd.SIGNAL, signal=9), CollectorEnd.HUNG),
    ],
)
def test_one_that_is_silent_is_called_hung_unless_its_node_is_gone(
    tmp_path: Path, end: Ended, called: CollectorEnd
) -> None:
    run = RunPaths(tmp_path)
    run.exchange.mkdir(parents=True)
    collector = CollectorProcess(SETTINGS, run, Status.of(run.exchange), 0, SilentCluster(run, end))
    collector.start({}, None, rehearse=False)
    while (ended := collector.ended()) is None:
        time.sleep(0.005)
    assert ended.end is called
    assert (ended == end) is (called is CollectorEnd.LOST)
    collector.close()
