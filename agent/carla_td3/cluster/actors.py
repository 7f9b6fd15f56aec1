"""The driver's end of Ray: the connection, one actor a collector for the whole run, and the newest weights.

The only module that imports Ray. An actor takes one ``carla`` of a node's, the nodes that have most of it free first;
Ray starts it again elsewhere where its node is gone, and ends it with this process.
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
LOOK_S = 0.05
LONGEST = 400
"""Characters of Ray's words that are kept."""
USAGE = "RAY_USAGE_STATS_ENABLED"


class Actors:
    """The cluster as a run uses it."""

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
        """Return a collector's actor, which may still look for its node.

        Raises:
            LostError: see ``answer_of``.
        """
        with self._lock, _in_words():
            if number not in self._actors:
                options = {"resources": {RESOURCE: 1}, "num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}
                made = ray.remote(Node).options(**options, scheduling_strategy="SPREAD", name=f"collector-{number}")
                self._actors[number] = made.remote(self._settings.simulator)
            return self._actors[number]

    def node_of(self, number: int, goes_on: Callable[[], bool], patience_s: float) -> str:
        """Return the name of the node that a collector has, once it has one.

        Raises:
            AgentError: none offers a simulator in this time, or the one that does has other versions (exit 69).
            GaveUpError: see ``answer_of``.
            LostError: it is gone again.
        """
        until_s = time.monotonic() + patience_s
        try:
            actor = self.actor(number)
            node, there = self.answer_of(actor.versions.remote, lambda: goes_on() and time.monotonic() < until_s)
        except GaveUpError:
            if not goes_on():
                raise
            raise AgentError(
                f"No node of the cluster at {self.address} had a simulator free for collector {number} within "
                f"{patience_s:g} s: start nodes with --resources '{{\"{RESOURCE}\": 1}}', or fewer collectors.",
                Exit.NO_SIMULATOR,
            ) from None
        if refused := Versions.here().refusal(there, node):
            self.let_go(number)  # the next one may find another node
            raise AgentError(refused, Exit.NO_SIMULATOR)
        return str(node)

    def newest(self, file: WeightsFile) -> tuple[int, Any]:
        """Return the version of the newest weights, and Ray's reference to them; of older ones none is kept.

        Raises:
            AgentError, LostError: see ``answer_of``.
        """
        with self._lock, _in_words():
            if self._weights is None or self._weights[0] != file.version:
                found = file.read()
                assert found is not None, "the learner publishes before it starts a collector"
                self._weights = (found.version, ray.put(found.flat))
            return self._weights

    def answer_of(self, method: Callable[..., Any], goes_on: Callable[[], bool], *arguments: Any) -> Any:
        """Return what an actor's method returns. It is called again where the answer was lost, and may have been run.

        Args:
            method: with Ray's ``remote``.
            goes_on: looked at while it isn't there yet.
            arguments: of the method.

        Raises:
            LostError: the actor has died, or Ray lost what it was asked or answered.
            AgentError: the cluster takes this run's token no more (65).
            RuntimeError: a mistake of ours on the node.
            GaveUpError: ``goes_on`` says no.
        """
        while True:
            with contextlib.suppress(exceptions.ActorUnavailableError), _in_words():
                asked = method(*arguments)
                while not ray.wait([asked], timeout=LOOK_S)[0]:
                    if not goes_on():
                        raise GaveUpError
                return ray.get(asked)
            time.sleep(LOOK_S)
            if not goes_on():
                raise GaveUpError

    def let_go(self, number: int) -> None:
        """End a collector's actor, if it has one; with it its simulator ends."""
        with self._lock:
            if (actor := self._actors.pop(number, None)) is not None:
                ray.kill(actor)

    def close(self) -> None:
        """Let go of all."""
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
        except RuntimeError as error:  # its own check of Python and Ray; it has no class of its own
            words = " ".join(str(error).split())
            raise AgentError(f"The cluster at {address} can't be used: {words}", Exit.BAD_CONFIG) from None
        found = str(context.address_info["gcs_address"])
        if refused := access.refusal(found, os.environ):
            ray.shutdown()
            raise AgentError(refused, Exit.BAD_CONFIG)
        return found


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Turn Ray's errors into ours, by its hierarchy: all but a mistake of ours and a token mean that something is lost.

    An actor that answers again soon (``ActorUnavailableError``) is left as it is.

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
        # Of a task that Ray itself couldn't run (its arguments are lost, say) this is a RayError's class, too.
        if isinstance(error.cause, exceptions.RayError):
            raise LostError(_in_short(error.cause)) from None
        raise RuntimeError(f"on its node: {_in_short(error)}") from None
    except exceptions.RayError as error:
        raise LostError(f"{type(error).__name__}: {_in_short(error)}") from None


def _in_short(error: BaseException) -> str:
    """Return the first line of what Ray says, and the last, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " … ".join(dict.fromkeys((lines[0], lines[-1])))[:LONGEST]
