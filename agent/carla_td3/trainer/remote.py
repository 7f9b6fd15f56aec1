"""Collectors on other machines, which the trainer handles like child processes.

Owns the run's cluster driver, the one child process that talks to the cluster, and the learner's end of each
collector's channel. Never imports Ray.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable

from carla_run.events import CollectorEnd
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.child import spawned
from carla_td3.exchange.messages import Channel, ChannelClosedError, Ended, Kill

KILLED_S = 15.0
"""Seconds to wait for a collector's end after it was killed: its last steps are fetched if its node answers."""
CLOSED_S = 10.0


class RemoteCollector:
    """One collector on another machine, with the interface of a child process; its last message is its end."""

    pid = None

    def __init__(self, channel: Channel, end_driver: Callable[[], None]) -> None:
        self._channel, self._end_driver = channel, end_driver
        self._hangs: Ended | None = None

    def ended(self) -> Ended | None:
        """See ``Driver``."""
        while self._channel.gather():
            pass
        if isinstance(self._channel.last, Ended):
            return self._channel.last
        if self._channel.closed and self._hangs is None:
            return Ended(cause="its driver ended", end=CollectorEnd.LOST)
        return self._hangs

    def wait(self, timeout_s: float) -> None:
        """See ``Driver``."""
        until_s = time.monotonic() + timeout_s
        while self.ended() is None and (left_s := until_s - time.monotonic()) > 0:
            self._channel.gather(left_s)

    def kill(self) -> None:
        """See ``Driver``."""
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(Kill())
        self.wait(KILLED_S)
        if self.ended() is None:  # it still holds the ring
            self._end_driver()
            self._hangs = Ended(cause="its driver hangs", end=CollectorEnd.LOST)


class Cluster:
    """The run's cluster driver: started with the first collector, and again if it ended."""

    def __init__(self, config: AgentConfig, run: RunPaths) -> None:
        self._settings, self._run = config.cluster, run
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self, ours: Channel, theirs: socket.socket) -> RemoteCollector:
        """Start a collector; the driver serves the other end of its channel."""
        try:
            socket.send_fds(self._driver(), [b"collector"], [theirs.fileno()])
        except OSError:  # the driver has ended meanwhile: this collector ends too, because its socket closes
            self.close()
        return RemoteCollector(ours, self.kill)

    def release(self, number: int) -> None:
        """Give a collector's place on its node back, with the simulator; the next collector looks for another place."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the driver has ended, and so have all places
                self._socket.send(str(number).encode())

    def close(self) -> None:
        """Let the driver end; running collectors and their simulators end with it."""
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
        words = (str(self._run.path.resolve()), self._settings.model_dump_json())
        log, environment = self._run.cluster_log, {"CUDA_VISIBLE_DEVICES": ""}
        with theirs:
            self._process = spawned("carla_td3.cluster", theirs, log, environment, *words)
        return self._socket
