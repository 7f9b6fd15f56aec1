"""Collectors that drive on other machines, as the trainer sees them: each like a child process of its own.

Owns the run's cluster driver, the one child process that speaks to the cluster, and the learner's ends of what each
collector's life is told by. Never imports Ray.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable

from carla_run.events import CollectorEnd
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.ended import Ended

KILLED_S = 15.0
"""For a collector's end after it was killed: its last steps are fetched, if its node answers."""
CLOSED_S = 10.0


class RemoteCollector:
    """One life of one collector, with what the trainer needs of a child process."""

    pid = None
    """Of no process here."""

    def __init__(self, control: socket.socket, end_driver: Callable[[], None]) -> None:
        self._control, self._end_driver = control, end_driver
        self._ended: Ended | None = None

    def ended(self) -> Ended | None:
        """Return how it ended; None while it lives."""
        if self._ended is None and select.select([self._control], [], [], 0)[0]:
            try:
                said = self._control.recv(1 << 16)
            except OSError:
                said = b""
            self._ended = Ended.heard(said) if said else Ended("its driver ended", CollectorEnd.LOST)
            self._control.close()
        return self._ended

    def wait(self, timeout_s: float | None) -> None:
        """Return when it has ended, or after so many seconds."""
        if self._ended is None:
            select.select([self._control], [], [], timeout_s)

    def kill(self) -> None:
        """End it now, and return when its ring is free for the next one."""
        if self.ended() is None:
            with contextlib.suppress(OSError):
                self._control.send(b"kill")
            self.wait(KILLED_S)
            if self.ended() is None:  # it still holds the ring
                self._end_driver()
                self._ended = Ended("its driver hangs", CollectorEnd.LOST)


class Cluster:
    """The run's driver: started at the first collector, and again after it ended.

    Call all from the main thread: the kernel ends the child when the thread that started it ends.
    """

    def __init__(self, config: AgentConfig, run: RunPaths) -> None:
        self._settings, self._run = config.cluster, run
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self, channel: socket.socket) -> RemoteCollector:
        """Begin a collector's life, whose orders come from this socket's other end."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._driver(), [b"life"], [channel.fileno(), theirs.fileno()])
            except OSError:  # it ended since: so does this life, for its sockets close
                self.close()
        return RemoteCollector(ours, self.kill)

    def release(self, number: int) -> None:
        """Give a collector's place on its node back, simulator and all; the next life looks for another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the driver has ended, and so have all places
                self._socket.send(str(number).encode())

    def close(self) -> None:
        """Let the driver end; the collectors that still live end with it, and so do their simulators."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSED_S)
        self.kill()

    def kill(self) -> None:
        """End the driver at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None

    def _driver(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self.close()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder, settings = str(self._run.path.resolve()), self._settings.model_dump_json()
        words = ("-m", "carla_td3.cluster", str(theirs.fileno()), str(os.getpid()), folder, settings)
        with theirs, (self._run.path / "cluster.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )
        return self._socket
