"""The collector's process, seen from the trainer: started, listened to, watched, ended.

Owns the child process and the learner's end of the channel. The client library can abort or hang the process it
lives in (facts.md section 5), so an end of any kind is an ordinary event here. Decides nothing about restarts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from carla_run.events import CollectorEnd
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.ended import Ended
from carla_td3.exchange.messages import Channel, ChannelClosedError, Configure, Order, Report, Stop
from carla_td3.exchange.status import Status
from carla_td3.trainer.remote import Cluster, RemoteCollector

# One thread for every library that would start more: acting at batch 1 gains nothing from them, and the learner
# needs the cores. No CUDA: only one process ever holds a context (docs/architecture.md).
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


class CollectorProcess:
    """One collector after another; never two at a time.

    Args:
        config: of the run.
        run: where it lives.
        status: its block.
        number: among the run's collectors.
        cluster: starts it on another machine; None has it on this one.
    """

    def __init__(
        self, config: AgentConfig, run: RunPaths, status: Status, number: int, cluster: Cluster | None = None
    ) -> None:
        self._config, self._cluster = config, cluster
        self._run = run
        self._status = status
        self._number = number
        self._process: subprocess.Popen[bytes] | RemoteCollector | None = None
        self._asked_to_stop = False
        self.channel: Channel | None = None
        """To the present one; None without one."""

    @property
    def pid(self) -> int | None:
        """The running collector's process id."""
        return None if self._process is None else self._process.pid

    def start(self, settings: Mapping[str, Any], until_episode: int | None, rehearse: bool) -> None:
        """Start one.

        Call from the main thread: the kernel ends the child when the thread that started it ends.

        Args:
            settings: its configuration, as plain data.
            until_episode: see ``Configure``.
            rehearse: whether it rehearses an evaluation first.
        """
        ours, theirs = socket.socketpair()
        limits = self._config.collector
        self._status.begin_collector(limits.start_limit_s, self._config.simulator.timeout_s + limits.hang_margin_s)
        with theirs:
            self._process = self._started(theirs) if self._cluster is None else self._cluster.start(theirs)
        self.channel, self._asked_to_stop = Channel(ours), False
        folder = str(self._run.path.resolve())
        self.send(
            Configure(
                config=dict(settings),
                run_directory=folder,
                collector=self._number,
                rehearse=rehearse,
                until_episode=until_episode,
            )
        )

    def _started(self, channel: socket.socket) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the learner, which then stops the collector in order.
        with self._run.log_of(self._number).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "carla_td3.collector", str(channel.fileno()), str(os.getpid())],
                pass_fds=(channel.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )

    def send(self, order: Order | Report) -> None:
        """Give an order; one that a dead collector can't take is dropped, its end is noticed by :meth:`ended`."""
        if self.channel is not None:
            with contextlib.suppress(ChannelClosedError):
                self.channel.send(order)

    def reports(self, timeout_s: float = 0.0) -> list[Order | Report]:
        """Return what it said since the last call; wait up to ``timeout_s`` when that is nothing."""
        found: list[Order | Report] = []
        if self.channel is None:
            time.sleep(timeout_s)
            return found
        with contextlib.suppress(ChannelClosedError):
            while (report := self.channel.receive(0.0 if found else timeout_s)) is not None:
                found.append(report)
        return found

    def ended(self) -> Ended | None:
        """Return how it ended, None while it runs and answers. One that hangs is killed here."""
        if self._process is None:
            return Ended("not started", CollectorEnd.NOT_STARTED)
        if (ended := _end_of(self._process)) is not None:
            return ended
        snapshot = self._status.read()
        if not snapshot.overdue:
            return None
        self.kill()
        told = _end_of(self._process)
        if told is not None and told.end is CollectorEnd.LOST:
            return told  # its node died: it couldn't give a sign, but it didn't hang
        cause = f"hung: no sign of life for {snapshot.silent_s:.1f} s while {snapshot.state}"
        return Ended(cause, CollectorEnd.HUNG)

    def ask_to_stop(self) -> None:
        """Ask it once to give the simulator back and end, if it has one yet."""
        if self._asked_to_stop or self._process is None:
            return
        self._asked_to_stop = self._status.state not in (CollectorState.STARTING, CollectorState.CONNECTING)
        if self._asked_to_stop:
            self.send(Stop())

    def stop(self, grace_s: float) -> None:
        """Ask it to give the simulator back and end; kill it after ``grace_s``, or at once if it has none yet."""
        self.ask_to_stop()
        if self._process is not None and self._asked_to_stop:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """End it now, if it still runs. What it reported can still be read."""
        if self._process is not None and _end_of(self._process) is None:
            self._process.kill()
            self._process.wait(None)

    def close(self) -> None:
        """Forget an ended collector, so that the next can be started."""
        self.kill()
        self._status.end_collector()
        if self.channel is not None:
            self.channel.close()
        self._process = self.channel = None


def _end_of(process: subprocess.Popen[bytes] | RemoteCollector) -> Ended | None:
    if isinstance(process, RemoteCollector):
        return process.ended()
    code = process.poll()
    return None if code is None else _described(code)


def _described(code: int) -> Ended:
    if code >= 0:
        return Ended(f"exit code {code}", CollectorEnd.EXIT, exit_code=code)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return Ended(f"killed by {name}", CollectorEnd.SIGNAL, signal=-code)
