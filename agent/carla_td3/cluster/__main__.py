"""``python -m carla_td3.cluster SOCKET PARENT RUN SETTINGS``: the run's Ray driver, started by ``trainer.remote``.

It is a separate process, as collectors are: a cluster's client library can end the process that loads it, and the
learner must survive that. The learner hands it one socket per collector process. It ends with the learner.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.paths import RunPaths
from carla_td3.cluster.collector_proxy import CollectorProxy
from carla_td3.collector.parent import die_with_parent
from carla_td3.config import ClusterConfig
from carla_td3.exchange.child import run_spawned
from carla_td3.exchange.messages import Channel
from carla_td3.exits import AgentError

WRITE_EVERY_S = 1.0
"""Seconds between two writes of ``nodes.json``."""


class Driver:
    """Runs one ``CollectorProxy`` per collector; all of them share the cluster connection."""

    def __init__(self, run: RunPaths, settings: ClusterConfig) -> None:
        self._run, self._settings = run, settings
        self._connector = ThreadPoolExecutor(max_workers=1)
        self._connecting: Future[Any] | None = None
        self._lock = threading.Lock()
        self._nodes: dict[int, Mapping[str, Any]] = {}
        self._written_s = 0.0

    def serve(self, learner: socket.socket) -> Exit:
        """Start a ``CollectorProxy`` for each socket that the learner hands over, until the learner closes its end.

        A message without a socket is the number of a collector whose place is no longer needed.
        """
        while (given := socket.recv_fds(learner, 16, 1))[0]:
            for descriptor in given[1]:
                proxy = CollectorProxy(self._connected, Channel(socket.socket(fileno=descriptor)), self._tell)
                threading.Thread(target=proxy.run, daemon=True).start()
            if not given[1]:
                self._release(int(given[0]))
        if (actors := self._actors()) is not None:
            actors.close()
        return Exit.FINISHED

    def _release(self, number: int) -> None:
        if (actors := self._actors()) is not None:
            actors.end_actor(number)
        with self._lock:
            self._nodes.pop(number, None)

    def _actors(self) -> Any:
        """Return the cluster; None if it isn't connected."""
        connecting = self._connecting
        if connecting is None or not connecting.done() or connecting.exception() is not None:
            return None
        return connecting.result()

    def _connected(self) -> Future[Any]:
        """Return the future of the cluster connection. A failed connection is tried again."""
        with self._lock:
            if self._connecting is None or (self._connecting.done() and self._connecting.exception() is not None):
                self._connecting = self._connector.submit(_connect, self._settings)
            return self._connecting

    def _tell(self, seen: Mapping[str, Any]) -> None:
        """Save what is known of a node. A full disk stops nothing."""
        with self._lock:
            self._nodes[int(seen["collector"])] = seen
            if time.monotonic() - self._written_s >= WRITE_EVERY_S:
                self._written_s = time.monotonic()
                content = json.dumps([self._nodes[number] for number in sorted(self._nodes)], indent=1)
                with contextlib.suppress(OSError):
                    write_whole(self._run.nodes, content, durable=False)


def _connect(settings: ClusterConfig) -> Any:
    try:
        # Imported late: without Ray, a collector ends with a sentence.
        from carla_td3.cluster.actors import Actors
    except ImportError as error:
        words = f"cluster.address needs Ray, and it isn't installed here ({error}): pip install '.[ray]'"
        raise AgentError(words, Exit.BAD_CONFIG) from None
    return Actors(settings)


def main() -> None:
    """Entry point of the child process."""
    die_with_parent(parent_pid=int(sys.argv[2]))
    driver = Driver(RunPaths(Path(sys.argv[3])), ClusterConfig.model_validate_json(sys.argv[4]))
    run_spawned(driver.serve)


if __name__ == "__main__":
    main()
