"""The driver's end of Ray: the connection, one actor per collector for the whole run, and the newest weights.

The only module that imports Ray. An actor takes one unit of a node's ``carla`` resource; nodes with the most free units
come first. Ray restarts an actor on another node if its node is gone, and ends it with this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray import exceptions

from carla_run import cluster_access as access
from carla_run.exits import Exit
from carla_td3.cluster.node import Node
from carla_td3.cluster.versions import Versions
from carla_td3.cluster.waiting import GaveUpError, LostError
from carla_td3.config import ClusterConfig
from carla_td3.exchange.weights import WeightsFile
from carla_td3.exits import AgentError

RESOURCE = "carla"
POLL_S = 0.05
MAX_ERROR_CHARACTERS = 400
"""Longest text of a Ray error that is kept, in characters."""
USAGE = "RAY_USAGE_STATS_ENABLED"


class Actors:
    """The Ray cluster, as a run uses it."""

    def __init__(self, settings: ClusterConfig) -> None:
        """Connect.

        Raises:
            AgentError: there is no such cluster (exit 69), or it may not be used (65).
        """
        self._settings = settings
        self._actors: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._weights: tuple[int, Any] | None = None
        self.address = self._connect()

    def actor(self, number: int) -> Any:
        """Return a collector's actor; it may still be waiting for its node.

        Raises:
            LostError: see ``answer_of``.
        """
        with self._lock, _in_words():
            if number not in self._actors:
                options = {"resources": {RESOURCE: 1}, "num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}
                made = ray.remote(Node).options(**options, scheduling_strategy="SPREAD", name=f"collector-{number}")
                self._actors[number] = made.remote(self._settings.simulator)
            return self._actors[number]

    def node_of(self, number: int, still_wanted: Callable[[], bool], patience_s: float) -> str:
        """Wait until a collector has a node, and return the node's name.

        Raises:
            AgentError: no node offers a simulator in this time, or its versions differ (exit 69).
            GaveUpError: see ``answer_of``.
            LostError: the actor was lost meanwhile.
        """
        until_s = time.monotonic() + patience_s
        try:
            actor = self.actor(number)
            node, there = self.answer_of(actor.versions.remote, lambda: still_wanted() and time.monotonic() < until_s)
        except GaveUpError:
            if not still_wanted():
                raise
            raise AgentError(
                f"No node of the cluster at {self.address} had a simulator free for collector {number} within "
                f"{patience_s:g} s: start nodes with --resources '{{\"{RESOURCE}\": 1}}', or fewer collectors.",
                Exit.NO_SIMULATOR,
            ) from None
        if refused := Versions.here().refusal(there, node):
            self.end_actor(number)  # the next actor may find another node
            raise AgentError(refused, Exit.NO_SIMULATOR)
        return str(node)

    def newest(self, file: WeightsFile) -> tuple[int, Any]:
        """Return the version of the newest weights and Ray's reference to them. References to older ones are dropped.

        Raises:
            AgentError, LostError: see ``answer_of``.
        """
        with self._lock, _in_words():
            if self._weights is None or self._weights[0] != file.version:
                found = file.read()
                assert found is not None, "the learner publishes before it starts a collector"
                self._weights = (found.version, ray.put(found.flat))
            return self._weights

    def answer_of(self, method: Callable[..., Any], still_wanted: Callable[[], bool], *arguments: Any) -> Any:
        """Return the result of an actor's method. If the answer is lost, the method is called again, so it may run
        twice.

        Args:
            method: with Ray's ``remote``.
            still_wanted: polled while the answer isn't there; False gives up.
            arguments: of the method.

        Raises:
            LostError: the actor has died, or Ray lost the question or the answer.
            AgentError: the cluster no longer accepts this run's token (65).
            RuntimeError: a bug of ours on the node.
            GaveUpError: ``still_wanted`` returned False.
        """
        while True:
            with contextlib.suppress(exceptions.ActorUnavailableError), _in_words():
                asked = method(*arguments)
                while not ray.wait([asked], timeout=POLL_S)[0]:
                    if not still_wanted():
                        raise GaveUpError
                return ray.get(asked)
            time.sleep(POLL_S)
            if not still_wanted():
                raise GaveUpError

    def end_actor(self, number: int) -> None:
        """End a collector's actor if it has one. Its simulator ends with it."""
        with self._lock:
            if (actor := self._actors.pop(number, None)) is not None:
                ray.kill(actor)

    def close(self) -> None:
        """End all actors."""
        ray.shutdown()

    def _connect(self) -> str:
        address = str(self._settings.address)
        os.environ[USAGE] = "0"
        if address != access.AUTO and (refused := access.refusal(address, os.environ)):
            raise AgentError(refused, Exit.BAD_CONFIG)
        try:
            context = ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except exceptions.AuthenticationError as error:
            raise AgentError(
                f"The cluster at {address} refuses the token: {_in_short(error)}", Exit.BAD_CONFIG
            ) from None
        except (ConnectionError, exceptions.RayError) as error:
            raise AgentError(f"No Ray cluster answers at {address}: {_in_short(error)}", Exit.NO_SIMULATOR) from None
        except RuntimeError as error:  # Ray's own check of Python and Ray versions has no class of its own
            words = " ".join(str(error).split())
            raise AgentError(f"The cluster at {address} can't be used: {words}", Exit.BAD_CONFIG) from None
        found = str(context.address_info["gcs_address"])
        if refused := access.refusal(found, os.environ):
            ray.shutdown()
            raise AgentError(refused, Exit.BAD_CONFIG)
        return found


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Turn Ray's errors into ours. Every error of Ray means a loss, except a refused token and a bug of ours.

    ``ActorUnavailableError`` is passed on unchanged: the actor will answer again soon.

    Raises:
        LostError, AgentError, RuntimeError: see ``Actors.answer_of``.
    """
    try:
        yield
    except exceptions.ActorUnavailableError:
        raise
    except exceptions.AuthenticationError as error:
        raise AgentError(f"The cluster refuses the token: {_in_short(error)}", Exit.BAD_CONFIG) from None
    except exceptions.RayTaskError as error:
        # If Ray itself couldn't run the task (its arguments are lost, say), this has a RayError's class, too.
        if isinstance(error.cause, exceptions.RayError):
            raise LostError(_in_short(error.cause)) from None
        raise RuntimeError(f"on its node: {_in_short(error)}") from None
    except exceptions.RayError as error:
        raise LostError(f"{type(error).__name__}: {_in_short(error)}") from None


def _in_short(error: BaseException) -> str:
    """Return the first and the last line of a Ray error; the last line has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " … ".join(dict.fromkeys((lines[0], lines[-1])))[:MAX_ERROR_CHARACTERS]
