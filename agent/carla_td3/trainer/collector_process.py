"""One collector from start to end, as seen by its supervisor: started, listened to, found dead or hanging, ended.

Its driver knows where it runs: in a process of this machine, or on a cluster's node (``remote``). The client library
can abort or hang its process (facts.md section 5), so an end of any kind is an ordinary event here. Decides nothing
about restarts: ``collector_supervisor`` does.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from carla_run.events import CollectorEnd
from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.child import spawned
from carla_td3.exchange.messages import Channel, ChannelClosedError, Configure, Ended, Order, Report, Stop
from carla_td3.exchange.status import Status

# One thread for every library that would start more: acting at batch 1 gains nothing from them, and the learner
# needs the cores. No CUDA: only one process ever holds a context (docs/architecture.md).
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


class Driver(Protocol):
    """Runs one collector, here or elsewhere."""

    @property
    def pid(self) -> int | None:
        """Process id on this machine; None if it is elsewhere."""

    def ended(self) -> Ended | None:
        """Return how it ended; None while it runs."""

    def wait(self, timeout_s: float) -> None:
        """Return when it has ended, or after ``timeout_s`` seconds."""

    def kill(self) -> None:
        """End it now, and return when its ring is free for the next one."""


Launch = Callable[[Channel, socket.socket], Driver]
"""Starts a collector, given the learner's end of its channel and the collector's end."""


class LocalProcess:
    """A collector in a child process."""

    def __init__(self, run: RunPaths, number: int, _: Channel, theirs: socket.socket) -> None:
        self._process = spawned("carla_td3.collector", theirs, run.log_of(number), _ENVIRONMENT)
        self.pid = self._process.pid

    def ended(self) -> Ended | None:
        """See ``Driver``."""
        code = self._process.poll()
        if code is None or code >= 0:
            return None if code is None else Ended(cause=f"exit code {code}", end=CollectorEnd.EXIT, exit_code=code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return Ended(cause=f"killed by {name}", end=CollectorEnd.SIGNAL, signal=-code)

    def wait(self, timeout_s: float) -> None:
        """See ``Driver``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """See ``Driver``."""
        self._process.kill()
        self._process.wait()


class CollectorProcess:
    """One collector after another; never two at a time.

    Args:
        config: of the run.
        run: the run directory.
        status: the collector's status block.
        number: of this collector in the run.
        launch: starts it; by default as a process on this machine.
    """

    def __init__(
        self, config: AgentConfig, run: RunPaths, status: Status, number: int, launch: Launch | None = None
    ) -> None:
        self._config, self._run, self._status, self._number = config, run, status, number
        self._launch: Launch = launch or functools.partial(LocalProcess, run, number)
        self._driver: Driver | None = None
        self._asked_to_stop = False
        self.channel: Channel | None = None
        """Channel to the present collector; None without one."""

    @property
    def pid(self) -> int | None:
        """Process id of the running collector; None if it is on another machine."""
        return None if self._driver is None else self._driver.pid

    def start(self, settings: Mapping[str, Any], until_episode: int | None, rehearse: bool) -> None:
        """Start one.

        Args:
            settings: its configuration, as plain data.
            until_episode: see ``Configure``.
            rehearse: whether it rehearses an evaluation first.
        """
        ours, theirs = socket.socketpair()
        limits = self._config.collector
        self._status.begin_collector(limits.start_limit_s, self._config.simulator.timeout_s + limits.hang_margin_s)
        self.channel, self._asked_to_stop = Channel(ours), False
        with theirs:
            self._driver = self._launch(self.channel, theirs)
        self.send(
            Configure(
                config=dict(settings),
                run_directory=str(self._run.path.resolve()),
                collector=self._number,
                rehearse=rehearse,
                until_episode=until_episode,
            )
        )

    def send(self, order: Order | Report) -> None:
        """Send an order. If the collector is dead the order is dropped, and :meth:`ended` will notice."""
        if self.channel is not None:
            with contextlib.suppress(ChannelClosedError):
                self.channel.send(order)

    def reports(self, timeout_s: float = 0.0) -> list[Order | Report]:
        """Return its reports since the last call; wait up to ``timeout_s`` if there are none."""
        found: list[Order | Report] = []
        if self.channel is None:
            time.sleep(timeout_s)
            return found
        with contextlib.suppress(ChannelClosedError):
            while (report := self.channel.receive(0.0 if found else timeout_s)) is not None:
                found.append(report)
        return found

    def ended(self) -> Ended | None:
        """Return how it ended; None while it runs and answers. A hanging collector is killed here."""
        if self._driver is None:
            return Ended(cause="not started", end=CollectorEnd.NOT_STARTED)
        if (ended := self._driver.ended()) is not None:
            return ended
        snapshot = self._status.read()
        if not snapshot.overdue:
            return None
        self._driver.kill()
        told = self._driver.ended()
        if told is not None and told.end is CollectorEnd.LOST:
            return told  # its node died: it couldn't give a sign of life, but it didn't hang
        cause = f"hung: no sign of life for {snapshot.silent_s:.1f} s while {snapshot.state}"
        return Ended(cause=cause, end=CollectorEnd.HUNG)

    def ask_to_stop(self) -> None:
        """Ask it, once, to give the simulator back and end."""
        if not self._asked_to_stop and self._driver is not None:
            self._asked_to_stop = self._status.state not in (CollectorState.STARTING, CollectorState.CONNECTING)
            if self._asked_to_stop:
                self.send(Stop())

    def stop(self, grace_s: float) -> None:
        """Ask it to give the simulator back and end; kill it after ``grace_s``, or at once if it has no simulator."""
        self.ask_to_stop()
        if self._driver is not None and self._asked_to_stop:
            self._driver.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """End it now if it still runs. Its reports can still be read."""
        if self._driver is not None and self._driver.ended() is None:
            self._driver.kill()

    def close(self) -> None:
        """Forget an ended collector, so that the next can be started."""
        self.kill()
        self._status.end_collector()
        if self.channel is not None:
            self.channel.close()
        self._driver = self.channel = None
