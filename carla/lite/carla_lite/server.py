"""The server: sockets, world and clock in one thread.

Owns the event loop and, in asynchronous mode, the pace of the ticks. Knows no method and no message.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol

from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.maps import Maps
from carla_lite.methods import table
from carla_lite.options import DEFAULTS, WorldOptions
from carla_lite.protocol.channel import Channel, listen_pair
from carla_lite.protocol.peer import client_version
from carla_lite.protocol.rpc import DeferredReply, RpcServer
from carla_lite.protocol.streams import Streams
from carla_lite.world import World

# The loop calls the hook at least this often.
_TURN_S = 0.05
# The world waits for the client that made one of these calls last.
_PACE = {"tick_cue", "set_episode_settings"}


class FaultHook(Protocol):
    """Hooks between the clients and the world, for ``faults``."""

    @property
    def halts(self) -> bool:
        """Whether the world is stopped, also in asynchronous mode."""

    def answers(self, method: str) -> bool:
        """Return whether a call is answered now; if not, it waits for :meth:`Server.resume`."""

    def seen(self, sensor: Sensor, snapshot: TickSnapshot) -> Iterable[Message]:
        """Return the messages that leave a sensor that is due and has listeners."""

    def turn(self) -> None:
        """Called between any two ticks of one client, and every 50 ms."""


class Server:
    """Listens on ``port`` (RPC) and ``port + 1`` (streams) once created; a context manager that closes both."""

    def __init__(self, host: str, port: int, maps: Maps, options: WorldOptions = DEFAULTS) -> None:
        """Listen and build the world; port 0 takes two that are free.

        Raises:
            OSError: a port is in use.
        """
        self._sockets = contextlib.ExitStack()
        rpc_listener, stream_listener = map(self._sockets.enter_context, listen_pair(host, port))
        self.port: int = rpc_listener.getsockname()[1]
        self._streams = Streams(stream_listener)
        self._world = World(self._streams, maps, options)
        self._hook: FaultHook | None = None
        self._pacemaker: Channel | None = None
        self.selector = selectors.DefaultSelector()
        """Sockets to be served in this loop are registered here, with a callback that takes the event mask."""
        self.selector.register(self._streams.selector.fileno(), selectors.EVENT_READ, self._serve_streams)
        self._rpc = RpcServer(rpc_listener, self.selector, self._answer, self._left)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._world.end_recordings()
        self._rpc.close()
        self._streams.close()
        self.selector.close()
        self._sockets.close()

    @property
    def frame(self) -> int:
        """Number of the last frame, and so of ticks."""
        return self._world.frame

    @property
    def unsupported(self) -> Mapping[str, int]:
        """How often clients called something without effect here, by name."""
        return self._world.unsupported

    @property
    def strict(self) -> bool:
        """Whether calls that CARLA refuses are refused."""
        return self._world.strict

    def attach(self, hook: FaultHook) -> None:
        """Use these hooks from now on."""
        self._hook = hook
        self._world.hooked = hook.seen

    def resume(self) -> None:
        """Answer the deferred calls, in order."""
        self._rpc.resume()

    def serve(self) -> None:
        """Serve until an exception ends it; in synchronous mode an idle server sleeps."""
        due_s = time.monotonic()
        while True:
            for key, mask in self.selector.select(self._wait_s(due_s)):
                key.data(mask)
            if self._hook is not None:
                self._hook.turn()
            if not self._stands() and time.monotonic() >= due_s:
                self._world.tick()
                # Real time; a server that was held up does not hurry to catch up.
                due_s = max(due_s + max(self._world.settings.delta_s, self._world.tick_s), time.monotonic())

    def _stands(self) -> bool:
        return self._world.settings.synchronous or (self._hook is not None and self._hook.halts)

    def _wait_s(self, due_s: float) -> float | None:
        longest_s = None if self._hook is None else _TURN_S
        if self._stands():
            return longest_s
        wait_s = max(0.0, due_s - time.monotonic())
        return wait_s if longest_s is None else min(wait_s, longest_s)

    def _answer(self, name: str, args: list[Any]) -> object:
        if self._hook is not None and not self._hook.answers(name):
            raise DeferredReply(name)
        if name in _PACE:
            self._pacemaker = self._rpc.caller
        if name == "version" and (refusal := self._refusal()):
            return table.failure(refusal)
        return table.answer(self._world, name, args)

    def _refusal(self) -> str | None:
        """Return why the calling client can't be served, if it has a known, different version.

        The first world message would end that client.
        """
        caller, spoken = self._rpc.caller, self._world.dialect
        found = None if caller is None else client_version(caller.peer)
        if found is None or found == spoken.version:
            return None
        refusal = spoken.refusal(found)
        print(f"carla-lite: {refusal}", flush=True)
        return refusal

    def _left(self, client: Channel) -> None:
        """Report it if the world now waits for a client that is gone: it waits for ever, as CARLA does."""
        if client is self._pacemaker:
            self._pacemaker = None
            if self._world.settings.synchronous:
                print(
                    f"carla-lite: the client at {client.peer} left in synchronous mode: the world waits at frame "
                    f"{self._world.frame} until another client ticks or ends that mode",
                    flush=True,
                )

    def _serve_streams(self, _mask: int) -> None:
        self._streams.serve()
